# SPDX-License-Identifier: MIT
"""The dialect of GPU MODE: header directives, case files, result lines, exit codes, GPU labels, seeds, ``task.yml``.

Everything here re-states an interface that kernelbot, popcorn-cli and their problem folders speak; nothing else in the
project knows its spelling. Times on the wire are nanoseconds, everything this module returns is in seconds.
Imports the standard library only; ``load_task`` loads PyYAML when called.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from scoring.model import ExitCode, score
from scoring.popcorn_cases import CaseError, CaseValue, format_case, parse_case, read_cases, write_cases
from scoring.popcorn_task import RANKINGS, SUBMISSION, Task, TaskError, TaskFile, load_task, parse_task

__all__ = [
    "BANNED", "EXTENSIONS", "GPUS", "LEADERBOARDS", "MAX_SUBMISSION_BYTES", "MODES", "PIPE_BYTES", "RANKINGS",
    "SUBMISSION", "CaseError", "CaseReport", "CaseValue", "Directives", "GpuLabel", "PopcornExit", "Report",
    "ReportError", "Task", "TaskError", "TaskFile", "Timing", "cli_directives", "combine_seed", "exit_code",
    "format_case", "format_entry", "load_task", "not_text", "parse_case", "parse_entries", "parse_report", "parse_task",
    "read_cases", "server_directives", "write_cases",
]

MODES = ("test", "benchmark", "leaderboard", "profile")
MAX_SUBMISSION_BYTES = 1_000_000
_CASES = 1000            # of a task: a count beyond that, and beyond what was said at all, is nonsense
EXTENSIONS = (".py", ".cu", ".cuh", ".cpp")
BANNED = "stream"                            # refused in any case, anywhere, comments included
PIPE_BYTES = 64 * 1024                       # GPU MODE's runner reads the pipe after the exit: more than this hangs


class PopcornExit(IntEnum):
    """Exit codes of an ``eval.py``."""

    OK = 0
    USAGE = 2                # bad mode or arguments
    DEVICE_FAILED = 110      # the GPU's API failed
    PIPE_FAILED = 111        # POPCORN_FD is absent or unusable
    VALIDATION_FAILED = 112  # ran to the end, and something failed
    BAD_CASES = 113
    TIMEOUT = 114


def exit_code(code: int, passed: bool) -> ExitCode:
    """What ``python -m submissions`` exits with after an evaluator exited with ``code`` and said ``passed``."""
    match code:
        case PopcornExit.OK:
            return ExitCode.OK if passed else ExitCode.FAILED
        case PopcornExit.USAGE | PopcornExit.BAD_CASES:
            return ExitCode.USAGE
        case PopcornExit.PIPE_FAILED:
            return ExitCode.INTERNAL
    return ExitCode.FAILED


# GPU labels ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GpuLabel:
    """What a leaderboard calls a GPU. ``arches``: kernel arches that run there, best first; exact case matters.

    sm_90a code runs on compute capability 9.0 alone; sm_89 builds carry PTX, which newer GPUs compile when loading.
    """

    label: str
    backend: str
    arches: tuple[str, ...]
    official: bool = True        # False: a label of ours that no GPU MODE runner has


GPUS: Mapping[str, GpuLabel] = {gpu.label: gpu for gpu in (
    GpuLabel("T4", "cuda", ("sm_75",)),
    GpuLabel("A100", "cuda", ("sm_80",)),
    GpuLabel("L4", "cuda", ("sm_89",)),
    GpuLabel("L4x4", "cuda", ("sm_89",)),
    GpuLabel("H100", "cuda", ("sm_90a", "sm_89")),
    GpuLabel("H200", "cuda", ("sm_90a", "sm_89"), official=False),
    GpuLabel("B200", "cuda", ("sm_100a", "sm_89")),
    GpuLabel("B200_Nebius", "cuda", ("sm_100a", "sm_89")),
    GpuLabel("MI250", "rocm", ("gfx90a",)),
    GpuLabel("MI300", "rocm", ("gfx942",)),
    GpuLabel("MI300x8", "rocm", ("gfx942",)),
    GpuLabel("MI355X", "rocm", ("gfx950",)),
    GpuLabel("CPU", "cpu", ("native",), official=False),
)}

# Boards whose GPUs are public facts; on any other board every label above is accepted.
LEADERBOARDS: Mapping[str, tuple[str, ...]] = {
    "amd-fp8-mm": ("MI300",),
    "amd-mixture-of-experts": ("MI300",),
    "amd-mla-decode": ("MI300",),
}

# Directives ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Directives:
    """What the header of a submission asks for; ``errors`` are (1-based line, message)."""

    leaderboard: str | None = None
    gpus: tuple[str, ...] = ()
    errors: tuple[tuple[int, str], ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)     # "leaderboard" | "gpus" -> 1-based line


_DIRECTIVE = re.compile(r"(?:#|//)!popcorn(?:\s+(.*))?$", re.IGNORECASE)


def not_text(data: bytes) -> tuple[int, str] | None:
    """Line and reason if a file is not UTF-8, which no server takes, though Python may run it (bytes in a comment)."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return data.count(b"\n", 0, error.start) + 1, f"not UTF-8: {error.reason}"
    return None


def _directive(line: str) -> list[str] | None:
    """The words after ``#!POPCORN``, None if the line is no directive."""
    match = _DIRECTIVE.match(line.rstrip())
    return (match[1] or "").split() if match else None


def server_directives(text: str) -> Directives:
    """As the server reads a submission: the leading comment block alone, and strictly."""
    found: dict[str, tuple[str, ...]] = {}
    lines: dict[str, int] = {}
    errors: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.startswith(("#", "//")):
            break
        words = _directive(line)
        if words is None:
            continue
        keyword, arguments = (words[0].lower() if words else ""), tuple(words[1:])
        name = "gpus" if keyword == "gpu" else keyword
        if name not in ("leaderboard", "gpus"):
            errors.append((number, f"unknown directive {keyword!r}; there are: leaderboard, gpu, gpus"))
        elif not arguments:
            errors.append((number, f"directive {keyword!r} has no argument"))
        elif name == "leaderboard" and len(arguments) > 1:
            errors.append((number, f"a leaderboard is one word, not {' '.join(arguments)!r}"))
        elif name in found:
            errors.append((number, f"directive {keyword!r} again; the first is on line {lines[name]}"))
        else:
            found[name], lines[name] = arguments, number
    return Directives(next(iter(found.get("leaderboard", ())), None), found.get("gpus", ()), tuple(errors), lines)


def cli_directives(text: str) -> Directives:
    """As popcorn-cli reads a submission: every comment line of the file, last one wins, one GPU only."""
    leaderboard: str | None = None
    gpus: tuple[str, ...] = ()
    errors: list[tuple[int, str]] = []
    lines: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        words = _directive(line)
        if not words or len(words) < 2:
            continue
        match words[0].lower():
            case "leaderboard":
                leaderboard, lines["leaderboard"] = words[1], number
            case "gpu" | "gpus":
                gpus, lines["gpus"] = tuple(words[1:]), number
    if len(gpus) > 1:
        errors.append((lines["gpus"], f"popcorn-cli takes one GPU, not {len(gpus)}"))
    return Directives(leaderboard, gpus, tuple(errors), lines)


# Seeds and result lines ----------------------------------------------------------------------------------------------


def combine_seed(public: int, secret: int | None) -> int:
    """The seed a case really uses: the public one, paired (Cantor) with POPCORN_SEED where that is set."""
    if secret is None:
        return public
    total = public + secret
    return public + total * (total + 1) // 2


class ReportError(ValueError):
    """Result lines that do not say what they must."""


@dataclass(frozen=True)
class Timing:
    """Times of one benchmark case in seconds; old evaluators leave ``best`` and ``worst`` out."""

    runs: int
    mean: float
    std: float
    err: float
    best: float | None
    worst: float | None


@dataclass(frozen=True)
class CaseReport:
    spec: str
    passed: bool
    text: str = ""                 # error of a failure, message of a pass
    timing: Timing | None = None
    profile: str = ""              # mode profile: the profiler's table


@dataclass(frozen=True)
class Report:
    """What an evaluator said. ``passed`` is its ``check`` line; without one it is False."""

    passed: bool
    tests: tuple[CaseReport, ...] = ()
    benchmarks: tuple[CaseReport, ...] = ()

    def score(self, ranking_by: str) -> float | None:
        """Seconds, lower is better; None unless every benchmark was timed.

        Raises ``ValueError`` for an unknown rule.
        """
        if not self.passed or not self.benchmarks or any(case.timing is None for case in self.benchmarks):
            return None
        return score([case.timing.mean for case in self.benchmarks if case.timing], ranking_by)


def format_entry(key: str, value: object) -> str:
    """One result line. A multi-line value is joined with a literal backslash and n, so it stays one line."""
    return f"{key}: {str(value).replace(chr(13), '').replace(chr(10), chr(92) + 'n')}\n"


def parse_entries(text: str) -> dict[str, str]:
    """All result lines: split at the first colon, both sides stripped, the last writer of a key wins."""
    entries = {}
    for line in text.split("\n"):
        key, colon, value = line.partition(":")
        if colon:
            entries[key.strip()] = value.strip()
    return entries


def parse_report(entries: Mapping[str, str]) -> Report:
    """The typed form of the result lines.

    Raises ``ReportError`` for a count or a time that is not a number.
    """
    return Report(entries.get("check") == "pass", _cases(entries, "test"), _cases(entries, "benchmark"))


def _cases(entries: Mapping[str, str], kind: str) -> tuple[CaseReport, ...]:
    count = _number(entries, f"{kind}-count", int, 0)
    if not 0 <= count <= max(len(entries), _CASES):      # a run that ends at its first case says nothing of the others
        raise ReportError(f"{kind}-count: {count} with {len(entries)} lines in all")
    cases = []
    for index in range(count):
        prefix = f"{kind}.{index}"
        timing = _timing(entries, prefix) if f"{prefix}.mean" in entries else None
        profile = _decode(entries.get(f"{prefix}.report", ""))
        passed = entries.get(f"{prefix}.status", "pass" if timing or profile else "fail") == "pass"
        text = entries.get(f"{prefix}.error") or entries.get(f"{prefix}.message", "")
        spec = entries.get(f"{prefix}.spec", "")
        cases.append(CaseReport(spec, passed, text.replace("\\n", "\n"), timing, profile))
    return tuple(cases)


def _decode(report: str) -> str:
    """A profiler's table: base64, in which evaluators write '*' for '/'. As it is if it is something else."""
    try:
        return base64.b64decode(report.replace("*", "/"), validate=True).decode()
    except ValueError:
        return report


def _timing(entries: Mapping[str, str], prefix: str) -> Timing:
    def seconds(name: str) -> float:
        value: float = _number(entries, f"{prefix}.{name}", float)
        return value / 1e9

    best, worst = (seconds(name) if f"{prefix}.{name}" in entries else None for name in ("best", "worst"))
    return Timing(_number(entries, f"{prefix}.runs", int), seconds("mean"), seconds("std"), seconds("err"), best, worst)


def _number(entries: Mapping[str, str], key: str, kind: type[int] | type[float], default: float | None = None) -> Any:
    value = entries.get(key, default)
    try:
        return kind(value)     # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ReportError(f"{key}: {value!r} is not a number") from None
