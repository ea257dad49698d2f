# SPDX-License-Identifier: MIT
"""``score(job) -> Record``: check every case, then time, never otherwise.

This process holds what decides (inputs, references, verdict, clock); the code under test runs in a worker
(``scoring.judge.cases`` has the cases judged there).
"""

from __future__ import annotations

import datetime
import platform
import secrets
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backends.errors import CompileError, SourceError
from scoring.judge import seeds
from scoring.judge.job import Job, Listener
from scoring.record import RANKS_ON_GPUS, STAND_IN, Case, CaseResult, Evidence, Facts, Mode, Record, Status, worst
from scoring.record import score as ranking_score

if TYPE_CHECKING:
    from backends.base import Target
    from backends.source import KernelSource
    from scoring.judge.cases import JobRunner
    from scoring.problem import Problem


def rejected(
    problem: Problem, target: Target, source: KernelSource, mode: Mode, error: CompileError | SourceError,
    kernel: str | None = None,
) -> Record:
    """The record of a kernel that does not compile, or whose file breaks the rules.

    What is wrong with the problem's ``kernel.h`` is no failure of the kernel: it could not be judged.
    """
    broken = isinstance(error, SourceError) and error.path == source.header
    compiled: dict[str, Any] = {"command": [], "version": "", "seconds": 0.0, "cached": False, "diagnostics": []}
    if isinstance(error, CompileError):
        compiled |= {
            "command": list(error.command), "log": error.log[-20_000:],
            "diagnostics": [dict(vars(diagnostic)) for diagnostic in error.diagnostics],
        }
    elif not broken:
        where = error.path.relative_to(source.root) if error.path.is_relative_to(source.root) else error.path
        message = str(error).removeprefix(f"{error.path}:{error.line}: ")
        compiled["diagnostics"] = [
            {"file": str(where), "line": error.line, "severity": "error", "message": message}]
    try:
        digest = source.digest
    except SourceError:              # the file itself, or a header, cannot be read
        digest = ""
    return Record(
        id=secrets.token_hex(16), created=_now(), problem=problem.name,
        kernel=kernel or f"{source.language}/{source.variant}", digest=digest, backend=target.backend,
        target=target.arch, gpu=target.gpu, device="", mode=mode,
        status=Status.UNAVAILABLE if broken else Status.COMPILE_ERROR, message=str(error),
        ranking_by=problem.ranking_by, compile={} if broken else compiled,
        facts=Facts(problem_broken=str(error)) if broken else Facts(),
    )


def score(job: Job, listener: Listener | None = None) -> Record:
    """Score one kernel on one target. Failures of the code under test become statuses; nothing is raised for them.

    ``listener`` hears how far it is.
    """
    started = time.monotonic()
    base = skeleton(job)
    if job.contestant is None:
        return replace(base, status=Status.UNAVAILABLE, message=job.reason, seconds=time.monotonic() - started)
    if job.device is None:
        from scoring.judge import strings

        return strings.compiled(job, base)
    from scoring.judge.cases import JobRunner
    from scoring.problem import ProblemError, ProblemNeeds

    def so_far(results: Sequence[CaseResult], left: Sequence[Case]) -> None:
        hears.judged(_judged(job, base, runner, results, started, left))

    hears = listener or Listener()
    runner = JobRunner(job, base.facts, base.seed, hears.progress, so_far)
    try:
        results = runner.run()
    except ProblemError as error:       # of a file that all cases need: one reason, whatever number of cases there are
        broken = "" if isinstance(error, ProblemNeeds) else str(error)
        return replace(
            base, status=Status.UNAVAILABLE, message=str(error), seconds=time.monotonic() - started,
            facts=replace(runner.facts, problem_broken=broken))
    finally:
        runner.close()
    if runner.unloadable is not None:   # one failure, whatever number of cases there are
        return _unloadable(job, base, runner, started)
    if not results:                     # no evidence is no pass
        why = runner.facts.cases_skipped_why
        together = why.startswith("of more than")
        message = f"no case was run: {'all are ' * together}{why or 'none was selected'}"
        return replace(
            base, status=Status.UNAVAILABLE, message=message, seconds=time.monotonic() - started,
            facts=runner.facts, system={**base.system, **runner.versions},
        )
    return _judged(job, base, runner, results, started, runner.untried)


def _judged(
    job: Job, base: Record, runner: JobRunner, results: Sequence[CaseResult], started: float, left: Sequence[Case] = (),
) -> Record:
    """The record of ``results``; with cases ``left`` to judge it says so, and has no score."""
    status = worst([result.status for result in results] + [Status.INCOMPLETE] * bool(left))
    message = next((r.message for r in results if r.status is status and status is not Status.PASSED), "")
    if left:
        message = message or f"ended after {len(results)} of {len(results) + len(left)} cases"
        if runner.hung:
            others = f"the other {len(left)} cases were" if len(left) > 1 else "the last case was"
            message = f"{message}; after {runner.hung} cases that hung, {others} not tried"
    return replace(
        base, status=status, message=message, cases=tuple(results), protocol=runner.protocol,
        score=_score(job, results, status), seconds=base.seconds + time.monotonic() - started,
        isolation=runner.isolation or base.isolation,
        facts=replace(runner.facts, cases_unjudged=tuple(case.name for case in left)),
        system={**base.system, **runner.versions},
    )


def _unloadable(job: Job, base: Record, runner: JobRunner, started: float) -> Record:
    """The record of what cannot be loaded: no case was tried."""
    assert runner.unloadable is not None
    status, message = runner.unloadable.status, str(runner.unloadable)
    compiled = base.compile
    if status is Status.COMPILE_ERROR and not compiled:
        from scoring.judge.strings import refused

        compiled = refused(message, job)
    return replace(
        base, status=status, message=message, seconds=base.seconds + time.monotonic() - started, compile=compiled,
        isolation=runner.isolation or base.isolation, facts=runner.facts,
        system={**base.system, **runner.versions},
    )


def skeleton(job: Job) -> Record:
    """The record of a job before anything ran."""
    usage: list[dict[str, Any]] = []
    compiled: dict[str, Any] = {}
    if job.binary is not None:
        usage = [dict(vars(kernel)) for kernel in job.binary.usage.kernels]
        compiled = {
            "command": list(job.binary.command), "version": job.binary.compiler_version,
            "seconds": job.binary.seconds, "cached": job.binary.cached,
            "diagnostics": [dict(vars(diagnostic)) for diagnostic in job.binary.diagnostics],
        }
    earlier = job.earlier
    system: dict[str, Any] = {
        "python": sys.version.split()[0], "platform": platform.platform(), "machine": platform.machine(),
        "host": platform.node(),
        "driver": job.device.driver if job.device else "",
    }
    facts = Facts(
        peaks=dict(job.target.peaks), peaks_source=job.target.peaks_source, llc_bytes=job.target.llc_bytes,
        emulated=bool(job.device and job.device.emulated),
        checks=_checks(job),
        stand_in=STAND_IN if job.stand_in else RANKS_ON_GPUS if job.gpus else "",
        resumed=earlier.facts.resumed + 1 if earlier is not None else 0,
        predictable=job.seed is not None or (earlier is not None and earlier.facts.predictable),
    )
    seed = earlier.seed if earlier else job.seed
    return Record(
        id=earlier.id if earlier else secrets.token_hex(16), created=_now(),
        seconds=earlier.seconds if earlier else 0.0, problem=job.problem.name, kernel=job.kernel, digest=job.digest,
        backend=job.target.backend, target=job.target.arch, gpu=job.target.gpu,
        device=job.device.name if job.device else "", mode=job.mode,
        status=Status.PASSED, evidence=Evidence.MEASURED if job.emulator is None else Evidence.MODELLED,
        ranking_by=job.problem.ranking_by,
        seed=seed if seed is not None else seeds.draw(), usage=usage, compile=compiled,
        facts=facts, system=system,
        isolation=earlier.isolation if earlier else "process",
    )


def _checks(job: Job) -> str:
    """The emulated device's checks, and its schedule where it is not the usual one."""
    if job.emulator is None:
        return ""
    schedule = job.emulator.options.get("schedule", "late")
    return job.emulator.options["checks"] + (f"; schedule {schedule}" if schedule != "late" else "")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def _score(job: Job, results: Sequence[CaseResult], status: Status) -> float | None:
    """The ranking score, only if every benchmark case of the problem passed and was timed.

    A slow device is scored over the problem's small cases, where there are any.
    """
    times = {(result.case.group, result.case.name): result.stats.median for result in results if result.stats}
    wanted = [(case.group, case.name) for case in job.small or job.problem.benchmarks]
    if status is not Status.PASSED or not wanted or any(case not in times for case in wanted):
        return None
    return ranking_score([times[case] for case in wanted], job.problem.ranking_by)
