# SPDX-License-Identifier: MIT
"""Sweeps HIP programs that others wrote: builds each with ``warpwave-hipcc``, runs it on the emulated MI300X with all
checks, and keeps what became of it.

``python benchmarks/tools/hip_programs.py CHECKOUT… [--only NAME…] [--log FILE]`` for checkouts of ROCm/rocm-examples,
ROCm/hip-tests and zjin-lcf/HeCBench. A program that the log has with the same arguments is not run again. ``--table``
prints the log as it stands in benchmarks/emulator.md. Nothing of a checkout belongs into this repository;
``hip_programs.txt`` has the arguments that make HeCBench's programs small enough, and HeCBench's programs that it does
not name are left out.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from backends.emulator import build
from backends.emulator.emulate import FOUND

ROOT = Path(__file__).resolve().parents[2]
SMALL = Path(__file__).with_suffix(".txt")
BUILD_SECONDS, LIMIT = 300, 60.0
PATIENCE = 30       # seconds on the clock to one of CPU time: other programs may keep the machine busy
# Programs of the other two that want arguments, or smaller ones.
SAMPLES = {"hipDispatchEnqueueRateMT": ("2", "0"), "convolution": ("-x", "64", "-y", "64", "-i", "1"),
           "matrix_multiplication": ("-A_rows", "128", "-A_cols", "128", "-B_cols", "128")}
# What a program prints about its own results.
_GOOD = re.compile(r"\bpass(?:ed)?\b|\b(?:results|all) match\b|success|\bcorrect|\bok\b|verified|no errors? found|"
                   r"\b0 errors", re.I)
_BAD = re.compile(r"\bfail(?!ures?: 0\b)|mismatch|incorrect|not correct|\bwrong\b|errors? (?:at|in|found)\b", re.I)
_SKIPPED = re.compile(r".*\bskipp(?:ed|ing)\b.*|.*waiv(?:ed|ing)\b.*", re.I)      # what the device does not have
_DATA = re.compile(r".*(?:(?:fail(?:ed)? to|can ?not|can't|could not|unable to|error) open|not (?:be )?opened).*", re.I)
_LACKS = re.compile(r"warpwave(?: emulator|-hipcc): (.*)")
_ABSENT = re.compile(r"(?:fatal )?error: (.*)|\*\*\* (.*)|cannot find (-l\S+)|"
                     r"^make: (?:\S*/)?([\w-]+): No such file", re.M)


@dataclasses.dataclass(frozen=True)
class Program:
    """``builds``: commands to run in ``folder``; ``run``: the program and its arguments, from there."""

    collection: str
    name: str
    folder: Path
    builds: tuple[tuple[str, ...], ...]
    run: tuple[str, ...]


# --- what there is in a checkout --------------------------------------------------------------------------------------

def programs(checkout: Path, prefix: Path) -> Iterator[Program]:
    """Of the collection that the checkout's folders show it to be."""
    if (checkout / "HIP-Basic").is_dir():
        yield from _examples(checkout, prefix)
    elif (checkout / "samples").is_dir():
        yield from _samples(checkout / "samples", prefix)
    elif (checkout / "src").is_dir():
        yield from _hecbench(checkout / "src", prefix)
    else:
        raise SystemExit(f"{checkout} is no checkout of rocm-examples, hip-tests or HeCBench")


def _make(prefix: Path, *more: str) -> tuple[str, ...]:
    hipcc = f"{prefix}/bin/hipcc"
    return ("make", "-B", f"ROCM_INSTALL_DIR={prefix}", f"ROCM_PATH={prefix}", f"HIPCXX={hipcc}", f"HIPCC={hipcc}",
            f"CC={hipcc}" if "CC" in more else "CXX=c++", *(word for word in more if word != "CC"))


def _examples(checkout: Path, prefix: Path) -> Iterator[Program]:
    for makefile in sorted(checkout.rglob("Makefile")):
        if name := re.search(r"^EXAMPLE\s*:?=\s*(\S+)", makefile.read_text(), re.M):
            folder = makefile.parent
            yield Program("rocm-examples", str(folder.relative_to(checkout)), folder, (_make(prefix),),
                          (f"./{name[1]}", *SAMPLES.get(folder.name, ())))


def _samples(samples: Path, prefix: Path) -> Iterator[Program]:
    """One program a source that has a ``main``, with the code objects that its CMakeLists.txt makes beside it."""
    hipcc = f"{prefix}/bin/hipcc"
    for lists in sorted(samples.rglob("CMakeLists.txt")):
        folder, text = lists.parent, lists.read_text()
        modules = [(hipcc, "--genco", source, "-o", out)
                   for source, out in re.findall(r"--genco[^\n]*?/(\w+\.cpp) -o (\S+)", text)]
        sources = [path for path in sorted(folder.iterdir()) if path.suffix in (".cpp", ".hip")]
        mains = [path for path in sources if re.search(r"\bmain\s*\(", path.read_text(errors="replace"))]
        for path in mains:
            others = [each.name for each in sources if each not in mains] if "static_library" in str(folder) else []
            words = (hipcc, "-fgpu-rdc", path.name, *others) if others else (hipcc, path.name)
            yield Program("hip-tests", f"{folder.name}/{path.stem}", folder,
                          (*modules, (*words, "-I../../common", "-lpthread", "-o", "program")),
                          ("./program", *SAMPLES.get(path.stem, ())))


def _hecbench(src: Path, prefix: Path) -> Iterator[Program]:
    for line in SMALL.read_text().splitlines():
        if line and not line.startswith("#"):
            name, *arguments = shlex.split(line)
            folder = src / f"{name}-hip"
            if folder.is_dir():
                yield Program("HeCBench", name, folder, (_make(prefix, "CC", "main"),), ("./main", *arguments))


# --- one program ------------------------------------------------------------------------------------------------------

def judged(program: Program, limit: float) -> dict[str, Any]:
    """The log's entry: result (right, ran, findings, wrong, lacks, slow), reason, findings, seconds, arguments."""
    entry: dict[str, Any] = {"collection": program.collection, "name": program.name, "arguments": list(program.run[1:])}
    (program.folder / program.run[0]).unlink(missing_ok=True)      # of an earlier sweep
    for command in program.builds:
        code, text, _, _ = _run(command, program.folder, BUILD_SECONDS)
        if code != 0:
            return {**entry, "result": "lacks", "reason": _absent(text)[:200]}
    if not (program.folder / program.run[0]).is_file():
        return {**entry, "result": "lacks", "reason": f"its build makes no {program.run[0]}"}
    with tempfile.NamedTemporaryFile(mode="r") as log:
        environment = {"WARPWAVE_EMULATOR": f"checks=all,log={log.name}"}
        code, text, wall, cpu = _run(program.run, program.folder, limit, environment)
        findings = [json.loads(line) for line in log if line.strip()]
    entry |= {"seconds": round(wall, 1), "cpu": round(cpu, 1), "tail": text[-1500:]}
    entry["findings"] = [{"check": each["check"], "at": f"{Path(each['file']).name}:{each['line']}",
                          "text": each["message"]} for each in findings]
    return {**entry, **_verdict(code, text, findings)}


def _absent(text: str) -> str:
    """What a build wanted, from what it printed."""
    found = re.search(r"warpwave-hipcc: (?!note)(.*)", text) or _ABSENT.search(text)
    return next(filter(None, found.groups()), "") if found else "does not build"


def _verdict(code: int | None, text: str, findings: list[dict[str, Any]]) -> dict[str, str]:
    # The emulator's own lines say nothing of the program's results.
    own = "\n".join(line for line in text.splitlines() if not line.startswith(("=========", "warpwave emulator:")))
    unsupported = [each[1] for each in _LACKS.finditer(text) if "not supported" in each[1] or "unsupported" in each[1]]
    if code is None:
        return {"result": "slow", "reason": "not done in time"}
    if unsupported:
        return {"result": "lacks", "reason": unsupported[0][:200]}
    if skipped := _SKIPPED.search(own):
        return {"result": "lacks", "reason": skipped[0][:200]}
    if code != 0 and (missing := _DATA.search(own)):      # the checkout has no such file
        return {"result": "lacks", "reason": missing[0].strip()[:200]}
    said, failed = _BAD.search(own), code not in (0, FOUND if findings else 0)
    if findings:
        return {"result": "findings", "reason": f"{len(findings)}" + (", and a wrong result" if said or failed else "")}
    if failed or said:
        return {"result": "wrong", "reason": f"exit {code}" + (f": {said[0]}" if said else "")}
    return {"result": "right" if _GOOD.search(own) else "ran", "reason": ""}


def _run(
    words: tuple[str, ...], folder: Path, seconds: float, more: dict[str, str] | None = None
) -> tuple[int | None, str, float, float]:
    """Exit status (None: not done in `seconds` of CPU time), what it printed, wall and CPU seconds."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(more or {})}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    child = subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True)
    code: int | None
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(child.pid, resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    try:
        text, _ = child.communicate(timeout=PATIENCE * seconds)
        code = None if child.returncode in (-signal.SIGXCPU, -signal.SIGKILL) else child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        text, _ = child.communicate()
        code = None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return code, text, time.monotonic() - started, cpu


# --- the table --------------------------------------------------------------------------------------------------------

_RESULTS = ("right", "ran", "findings", "wrong", "lacks", "slow")


def table(entries: list[dict[str, Any]]) -> str:
    """Counts by collection, then the names: what lacks something with what it is, findings with where they are."""
    lines = ["| collection | tried | " + " | ".join(_RESULTS) + " |", "|---" * (len(_RESULTS) + 2) + "|"]
    for collection in [*sorted({each["collection"] for each in entries}), "all"]:
        of = [each for each in entries if collection in ("all", each["collection"])]
        counts = collections.Counter(each["result"] for each in of)
        lines.append(f"| {collection} | {len(of)} | " + " | ".join(str(counts[name]) for name in _RESULTS) + " |")
    lines += ["", "| result | programs |", "|---|---|"]
    for result in _RESULTS:
        of = sorted((each for each in entries if each["result"] == result), key=lambda each: str(each["name"]))
        if of:
            lines.append(f"| {result} | {_missing(of) if result == 'lacks' else ', '.join(map(_named, of))} |")
    return "\n".join(lines)


def _missing(entries: list[dict[str, Any]]) -> str:
    """What they lack, with the programs behind it."""
    programs = collections.defaultdict(list)
    for each in entries:
        reason = str(each["reason"])
        found = re.match(r"(\w+) \(Debian|'?(\w+)/[\w/.]+'?(?: file not found|: No such file)", reason)
        name = str(each["name"]).removeprefix("HIP-Basic/").removeprefix("Libraries/")
        programs[next(filter(None, found.groups()), reason) if found else reason].append(name)
    return "; ".join(f"{reason}: {', '.join(names)}" for reason, names in sorted(programs.items()))


def _named(entry: dict[str, Any]) -> str:
    name = str(entry["name"]).removeprefix("HIP-Basic/")
    if entry["result"] == "findings":
        places = sorted({f"{each['check']} at {each['at']}" for each in entry["findings"]})
        more = "; …" if len(places) > 3 else ""
        return f"{name} ({'; '.join(places[:3])}{more}{entry['reason'].lstrip('0123456789')})"
    return f"{name} ({entry['reason']})" if entry["reason"] and entry["result"] != "slow" else name


def read(log: Path) -> list[dict[str, Any]]:
    """The last entry of each program."""
    entries = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return list({(each["collection"], each["name"]): each for each in entries}.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", nargs="*", type=Path)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--log", type=Path, default=Path("hip_programs.jsonl"))
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="CPU time of one run")
    parser.add_argument("--budget", type=float, default=float("inf"), metavar="SECONDS", help="CPU time of the sweep")
    parser.add_argument("--table", action="store_true", help="print the log's table and run nothing")
    options = parser.parse_args()
    if options.table:
        print(table(read(options.log)))
        return 0
    prefix = build.prefix(report=lambda line: print(line, file=sys.stderr))
    done = {(each["collection"], each["name"]): each["arguments"] for each in read(options.log)}
    for checkout in options.checkouts:
        for program in programs(checkout.resolve(), prefix):
            if options.only and program.name not in options.only:
                continue
            if done.get((program.collection, program.name)) == list(program.run[1:]):
                continue
            usage = resource.getrusage(resource.RUSAGE_CHILDREN)
            if usage.ru_utime + usage.ru_stime > options.budget:
                print("the budget is used up; the same command goes on from here", file=sys.stderr)
                return 0
            entry = judged(program, options.limit)
            with options.log.open("a") as log:
                log.write(json.dumps(entry) + "\n")
            print(f"{program.collection} {program.name}: {entry['result']} {entry['reason']} "
                  f"({entry.get('cpu', 0)} s)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
