# SPDX-License-Identifier: MIT
"""``run --sanitize``: which devices can be looked at, and what compute-sanitizer adds to a record.

The judge checks numbers as always. Then every case is called once more under each tool, in a process of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from backends.instruments import sanitizer
from scoring.ipc.emulator import explain
from scoring.judge import alone
from scoring.judge.alone import Called
from scoring.judge.job import Job
from scoring.judge.seeds import SeedSource
from scoring.output import units
from scoring.record import CaseResult, ExitCode, Mode, Record, Status, worst
from scoring.run.select import SelectionError
from scoring.run.targets import Place

SECONDS = 900.0          # of one call: a sanitized kernel is up to a hundred times slower
_UNTRIED = (Status.UNAVAILABLE, Status.UNSUPPORTED, Status.COMPILE_ERROR)


def ask(options: argparse.Namespace) -> None:
    """Make of ``--sanitize`` what the rest of a command line must be: tests alone, and the emulator's checks.

    Raises ``SelectionError`` (2) for flags that do not go with it.
    """
    wrong = [flag for flag, given in (
        (f"--mode {options.mode}", options.mode not in (None, Mode.TEST.value)), ("--against", options.against),
        ("--peers", options.peers), ("--calls", getattr(options, "calls", 0)),
        (f"--isolation {options.isolation}", options.isolation not in (None, "auto", "process")),
        ("--checks", options.checks)) if given]
    if wrong:
        raise SelectionError(f"--sanitize looks for faults in test mode, without times and sandbox: leave out "
                             f"{', '.join(wrong)}", ExitCode.USAGE)
    options.mode = Mode.TEST.value
    options.checks = sanitizer.emulated_checks(options.sanitize)


def can_look(place: Place) -> bool:
    """Whether there is something that looks at what runs in a place: a real CUDA device, or an emulated one."""
    return place.device is not None and (place.device.emulated or place.target.backend == "cuda")


def require(places: Sequence[Place]) -> None:
    """Raises ``SelectionError`` (4) if nothing can be looked at, ``ToolchainMissing`` without the tool."""
    able = [place for place in places if can_look(place)]
    if not able:
        here = list(dict.fromkeys(place.device.name if place.device else f"no {place.target.gpu}" for place in places))
        raise SelectionError(f"--sanitize needs a CUDA device (compute-sanitizer) or an emulated one (--backend rocm, "
                             f"or cuda with --emulate), and here is {', '.join(here)}", ExitCode.UNAVAILABLE)
    if any(not place.device.emulated for place in able if place.device is not None):
        sanitizer.find()


def examined(
    job: Job, record: Record, note: Callable[[str], None], program: Path | None = None,
) -> Record:
    """The record with the findings of ``job.sanitizers`` in its cases; ``program`` replaces the search.

    A case with findings has failed, whatever its numbers are.
    """
    if not job.sanitizers or not record.cases or job.contestant is None or (job.device and job.device.emulated):
        return record
    program = program or sanitizer.find()
    seeds = SeedSource(record.seed)
    cases = []
    for result in record.cases:
        source = seeds.of(result.case)
        note(f"{job.kernel}: {result.case.name} under {', '.join(job.sanitizers)}")
        cases.append(result if result.status in _UNTRIED else _examined(job, result, source, program))
    status = worst([result.status for result in cases])
    message = next((result.message for result in cases if result.status is status and status is not Status.PASSED), "")
    return replace(
        record, cases=tuple(cases), status=status, message=message, isolation="process",
        score=record.score if status is Status.PASSED else None,
        facts=replace(record.facts, checks=",".join(job.sanitizers)))


def _examined(job: Job, result: CaseResult, seeds: SeedSource, program: Path) -> CaseResult:
    kernels = sanitizer.identifiers([str(each.name) for each in job.binary.usage.kernels]) if job.binary else []
    findings, told = [], []
    bad = Status.PASSED
    with alone.prepared(job, result.case, seeds) as case:
        for tool in job.sanitizers:
            log = case.folder / f"{tool}.log"
            log.unlink(missing_ok=True)

            def command(watched: Sequence[str], tool: str = tool, log: Path = log) -> list[str]:
                return sanitizer.command(program, tool, log, watched, kernels)

            called = case.call(command, SECONDS, fill=tool != "initcheck")
            text = log.read_text(errors="replace") if log.is_file() else ""
            found = sanitizer.parse(text, tool)
            findings += found
            if not found and (why := _failure(called, text)):
                bad = worst([bad, called.verdict.status if not called.verdict.passed else Status.RUNTIME_ERROR])
                told.append(f"{tool}: {why}")
    clean = [tool for tool in job.sanitizers if not any(found["check"] == tool for found in findings)
             and not any(text.startswith(f"{tool}: ") for text in told)]
    if clean:
        told.append(f"{', '.join(clean)}: nothing found")
    count = sum(found["times"] for found in findings)
    if findings:
        told.insert(0, f"{units.plural(count, 'report')} of compute-sanitizer\n{explain(findings)}")
        bad = worst([bad, Status.RUNTIME_ERROR])
    status = worst([result.status, bad])
    own = [result.message] if result.message else []
    # What decides comes first: a table shows the first line.
    lines = [*told, *own] if result.status is Status.PASSED and status is not Status.PASSED else [*own, *told]
    return replace(result, status=status, message="; ".join(lines) if status is Status.PASSED else "\n".join(lines),
                   findings=(*result.findings, *findings), stats=result.stats if status is Status.PASSED else None)


def _failure(called: Called, text: str) -> str:
    """Why a call without findings is no clean one; "" if it is."""
    if reason := sanitizer.trouble(text):
        return f"{reason}; {called.verdict.message.partition(chr(10))[0]}" if not called.verdict.passed else reason
    if not called.verdict.passed:
        return called.verdict.message
    if called.returncode not in (0, sanitizer.FOUND):
        return f"compute-sanitizer ended with exit code {called.returncode}"
    return ""
