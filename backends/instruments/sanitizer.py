# SPDX-License-Identifier: MIT
"""compute-sanitizer: its command line, and its reports as findings.

Format: NVIDIA's "Compute Sanitizer" user manual. A report is a block of lines that start with ``=========``; its first
line has one space behind that, the lines that belong to it have more.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backends import cuda
from backends.errors import ToolchainMissing
from backends.toolchain import which

PROGRAM = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
# What emulated devices look for in their place; each leaves out the names that it does not know.
EMULATED: Mapping[str, tuple[str, ...]] = {
    "memcheck": ("bounds", "misaligned", "cluster"),
    "racecheck": ("lds-race", "global-race", "shared-race", "proxy-fence", "in-flight", "grid-order"),
    "synccheck": ("barrier", "waitcnt", "hazard", "mbarrier", "collective"), "initcheck": ("uninitialised",),
}
FOUND = 99                # its exit code when it has something to say
PRINTED = 200             # reports of a call that are read; it counts more of them by itself
FRAMES = 3                # device functions that a report is told with, the innermost first

_PREFIX = "========="
_HEADS = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY")
_TROUBLE = ("Internal Sanitizer Error", "Error: Target application terminated before first instrumented API call",
            "Error: process didn't terminate successfully", "Target application returned an error",
            "Target application terminated before first instrumented API call")
_STACK = ("Device Frame:", "Host Frame:", "Saved host backtrace")
_VARIES = re.compile(r"\+?0x[0-9a-f]+| \[\d+ hazards\]|[\d,]+ bytes (?=after|before)")     # in one kind
_PLACE = re.compile(r"(?:\bat |^)(?P<function>.+?)\+0x[0-9a-f]+(?: in (?P<file>[^\s:]+):(?P<line>\d+))?")
_HAZARDS = re.compile(r"\[(\d+) hazards?\]")


def parse_tools(text: str) -> tuple[str, ...]:
    """The names in ``text``, separated by commas, in the order of ``TOOLS``. Raises ``ValueError`` for another."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or (unknown := [word for word in words if word not in TOOLS]):
        raise ValueError(f"no tool {unknown[0]!r}; there are {', '.join(TOOLS)}" if words
                         else f"which tools? some of {', '.join(TOOLS)}, separated by commas")
    return tuple(tool for tool in TOOLS if tool in words)


def emulated_checks(tools: Sequence[str]) -> str:
    """The emulators' checks that look for what ``tools`` look for, as ``--checks`` takes them."""
    return ",".join(check for tool in tools for check in EMULATED[tool])


def find() -> Path:
    """The program: beside nvcc, in the wheel nvidia-cuda-sanitizer-api, or on PATH. Raises ``ToolchainMissing``."""
    homes = cuda.toolkits()
    places = [home / folder / PROGRAM for home in homes for folder in ("bin", "compute-sanitizer")]
    places += filter(None, [which(PROGRAM)])
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise ToolchainMissing(PROGRAM, [*map(str, places), f"PATH: {PROGRAM}"],
                               "install a CUDA toolkit, or pip install nvidia-cuda-sanitizer-api")
    return found


def command(program: Path, tool: str, log: Path, watched: Sequence[str], kernels: Sequence[str] = ()) -> list[str]:
    """The command line that runs ``watched`` under ``tool`` and writes what it finds to ``log``.

    ``kernels``: identifiers of the device functions to look at (all, if there are none).
    """
    filters = [word for kernel in dict.fromkeys(kernels) for word in ("--kernel-name", f"kernel_substring={kernel}")]
    # What torch asks of the runtime in vain is no fault of the kernel's.
    own = ["--report-api-errors", "no"] if tool == "memcheck" else []
    return [str(program), "--tool", tool, "--error-exitcode", str(FOUND), "--print-limit", str(PRINTED),
            "--log-file", str(log), *own, *filters, *watched]


def identifiers(names: Sequence[str]) -> list[str]:
    """The plain names of demangled functions: ``step`` of ``void ns::step<64>(float*)``."""
    found = []
    for name in names:
        plain = re.split(r"[<(]", name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
        word = re.split(r"::|\s", plain.strip())[-1]
        if word.isidentifier():
            found.append(word)
    return list(dict.fromkeys(found))


def reports(text: str) -> list[list[str]]:
    """The blocks of what the program printed, without the prefix; summaries and empty lines are left out."""
    found: list[list[str]] = []
    fresh = True
    for line in text.splitlines():
        if not line.startswith(_PREFIX):
            continue
        words = line.removeprefix(_PREFIX)
        body = words.strip()
        if not body or body.startswith(_HEADS):
            fresh = True
        elif fresh or not words.startswith("  "):
            found.append([body])
            fresh = False
        else:
            found[-1].append(body)
    return found


def trouble(text: str) -> str:
    """What kept the tool from looking, in its own words; "" if nothing did."""
    return next((block[0] for block in reports(text) if block[0].startswith(_TROUBLE)), "")


def parse(text: str, tool: str) -> list[dict[str, Any]]:
    """What the program found, each kind of report once, the most frequent first.

    Keys are those of the emulated device's findings: ``check``, ``message``, ``kernel``, ``file``, ``line``, ``text``,
    ``times``. Of one kind are reports that say the same at the same places; addresses, threads and blocks may differ.
    """
    found: dict[str, dict[str, Any]] = {}
    for block in _told(text):
        entry = found.setdefault(kind(block), _finding(block, tool) | {"times": 0})
        entry["times"] += 1
    return sorted(found.values(), key=lambda entry: -entry["times"])


def kinds(text: str) -> Counter[str]:
    """How often each kind of report came."""
    return Counter(map(kind, _told(text)))


def _told(text: str) -> list[list[str]]:
    return [block for block in reports(text) if not block[0].startswith(_TROUBLE)]


def kind(block: Sequence[str]) -> str:
    """What reports of one kind have in common: their words and device frames, without numbers that vary."""
    said = [line for line in block if not line.startswith((*_STACK, "by thread"))]
    frames = [line for line in block if line.startswith(_STACK[0])]
    return _VARIES.sub("", " ".join([*said, *frames[:FRAMES]]))


def _finding(block: Sequence[str], tool: str) -> dict[str, Any]:
    shown = [line for line in block if not line.startswith(_STACK[1:])]
    place = next(_places(block), None)
    frames = [match for line in block if line.startswith(_STACK[0]) for match in [_PLACE.search(_frame(line))] if match]
    inner = place["function"] if place else ""
    found: dict[str, Any] = {
        "check": tool, "message": block[0], "kernel": frames[-1]["function"] if frames else inner,
        "file": (place["file"] or "") if place else "", "line": int(place["line"] or 0) if place else 0,
        "text": "\n".join([f"{_PREFIX} {shown[0]}", *(f"{_PREFIX}     {line}" for line in shown[1:])]),
    }
    if match := _HAZARDS.search(" ".join(block)):
        found["hazards"] = int(match[1])
    return found


def _places(block: Sequence[str]) -> Iterator[re.Match[str]]:
    for line in block:
        if not line.startswith(_STACK) and (match := _PLACE.search(line)):
            yield match


def _frame(line: str) -> str:
    return line.removeprefix(_STACK[0]).strip()
