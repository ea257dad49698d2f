# SPDX-License-Identifier: MIT
"""``score(job) -> Record``: check every case, then time, never otherwise.

This process holds what decides (inputs, references, verdict, clock); the code under test runs in a worker
(``scoring.referee`` has the cases judged there).
"""

from __future__ import annotations

import datetime
import operator
import platform
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from backends.base import CompileError, SourceError
from scoring import model, timing
from scoring.model import Case, CaseResult, Evidence, Mode, Record, Status
from scoring.sandbox.policy import Policy

if TYPE_CHECKING:
    from backends.base import Binary, Device, Target
    from backends.source import KernelSource
    from scoring.caserun import Contestant
    from scoring.problem import Problem
    from scoring.referee import Referee


@dataclass(frozen=True)
class Limits:
    """Deadlines in seconds, and the largest case in FLOP to run where arithmetic is slow (None: no limit)."""

    load_seconds: float = 300.0
    first_call_seconds: float = 90.0
    call_seconds: float = 20.0
    job_seconds: float = 3600.0
    case_flops: float | None = None


@dataclass(frozen=True)
class Job:
    """Everything ``score`` needs. ``contestant`` and ``device`` are None for what can only be compiled here."""

    problem: Problem
    target: Target
    kernel: str
    digest: str
    mode: Mode
    contestant: Contestant | None = None
    device: Device | None = None
    binary: Binary | None = None
    peers: tuple[Contestant, ...] = ()
    cases: tuple[Case, ...] = ()
    seed: int | None = None
    limits: Limits = field(default_factory=Limits)
    sandbox: Policy = field(default_factory=Policy)
    timing: timing.TimingOptions = field(default_factory=timing.TimingOptions)
    emulator: Mapping[str, Any] | None = None       # of an emulated device: its library and options
    chain: Mapping[str, Any] | None = None          # the commit chain's library and what to load before it
    telemetry: Callable[[], Mapping[str, Any]] = field(default=dict, compare=False)
    progress: Callable[[str], None] = field(default=lambda _text: None, compare=False)
    checkpoint: Callable[[Record], None] = field(default=lambda _record: None, compare=False)   # what is judged so far
    earlier: Record | None = None    # of a run that ended early (``resumable``): what passed there is not judged again
    reason: str = ""                 # why it cannot run here

    @property
    def torch_device(self) -> str:
        """Where judge and worker keep tensors: an emulated device's memory is the host's."""
        if self.device is None or self.device.emulated or self.target.backend == "cpu":
            return "cpu"
        return f"cuda:{self.device.index}"

    def compiled_only(self) -> Job:
        """The same job without anything to run: what ``build`` shows."""
        return replace(self, contestant=None, device=None, reason=self.reason or model.NOT_ASKED)


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
        system={"problem_broken": str(error)} if broken else {},
    )


def score(job: Job) -> Record:
    """Score one kernel on one target. Failures of the code under test become statuses; nothing is raised for them.

    After every case but the last ``job.checkpoint`` gets the record so far, which says which cases are left.
    """
    started = time.monotonic()
    base = _skeleton(job)
    if job.contestant is None or job.device is None:
        return replace(base, status=Status.UNAVAILABLE, message=job.reason, seconds=time.monotonic() - started)
    from scoring.problem import ProblemError
    from scoring.referee import Referee

    def so_far(results: Sequence[CaseResult], left: Sequence[Case]) -> None:
        job.checkpoint(_judged(job, base, referee, results, started, left))

    referee = Referee(job, base.seed, so_far)
    try:
        results = referee.run()
    except ProblemError as error:       # of a file that all cases need
        referee.facts["problem_broken"] = str(error)
        results = [CaseResult(case, Status.UNAVAILABLE, message=str(error)) for case in job.cases]
    finally:
        referee.close()
    if not results:                     # no evidence is no pass
        why = referee.facts.get("cases_skipped_why")
        message = f"no case was run: {f'all are {why}' if why else 'none was selected'}"
        return replace(
            base, status=Status.UNAVAILABLE, message=message, seconds=time.monotonic() - started,
            system={**base.system, **referee.facts},
        )
    return _judged(job, base, referee, results, started)


def _judged(
    job: Job, base: Record, referee: Referee, results: Sequence[CaseResult], started: float, left: Sequence[Case] = (),
) -> Record:
    """The record of ``results``; with cases ``left`` to judge it says so, and has no score."""
    status = model.worst([result.status for result in results] + [Status.INCOMPLETE] * bool(left))
    message = next((r.message for r in results if r.status is status and status is not Status.PASSED), "")
    facts = dict(referee.facts)
    if left:
        facts["cases_unjudged"] = [case.name for case in left]
        message = message or f"ended after {len(results)} of {len(results) + len(left)} cases"
    return replace(
        base, status=status, message=message, cases=tuple(results), protocol=referee.protocol,
        score=_score(job, results, status), seconds=base.seconds + time.monotonic() - started,
        isolation=referee.isolation or base.isolation,
        system={**base.system, **facts},
    )


def can_go_on(record: Record) -> bool:
    """Whether a later run may go on with what a record has: it is incomplete, and nothing failed. Never in leaderboard
    mode, where whoever ends a run must not choose what is drawn again."""
    return record.status is Status.INCOMPLETE and record.mode is not Mode.LEADERBOARD


def resumable(job: Job, known: Iterable[Record]) -> Record | None:
    """The first of the ``known`` records that ``job`` can go on with: the same is to be judged in the same place."""
    if job.device is None:
        return None
    wanted = _skeleton(job)
    names = {case.name for case in job.cases if job.mode is not Mode.TEST or case.group == "tests"}
    alike = operator.attrgetter("problem", "kernel", "digest", "backend", "target", "gpu", "device", "mode", "evidence")

    def fits(record: Record) -> bool:
        judged = {result.case.name for result in record.cases}
        timed = [result for result in record.cases if result.stats is not None]
        beside = any(result.peers or result.environment.get("peer_notes") for result in timed)
        return (
            can_go_on(record) and alike(record) == alike(wanted) and job.seed in (None, record.seed)
            and judged | set(record.unjudged) == names - set(record.system.get("cases_skipped", ()))
            and all(record.system.get(fact) == wanted.system.get(fact) for fact in ("driver", "checks", "machine"))
            and (not timed or beside == bool(job.peers)))

    return next(filter(fits, known), None)


def _skeleton(job: Job) -> Record:
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
        "driver": job.device.driver if job.device else "", "peaks": dict(job.target.peaks),
        "peaks_source": job.target.peaks_source, "llc_bytes": job.target.llc_bytes,
        "emulated": bool(job.device and job.device.emulated),
    }
    if job.emulator is not None:
        system["checks"] = job.emulator["options"]["checks"]
    if earlier is not None:
        system["resumed"] = int(earlier.system.get("resumed", 0)) + 1
    seed = earlier.seed if earlier else job.seed
    return Record(
        id=earlier.id if earlier else secrets.token_hex(16), created=_now(),
        seconds=earlier.seconds if earlier else 0.0, problem=job.problem.name, kernel=job.kernel, digest=job.digest,
        backend=job.target.backend, target=job.target.arch, gpu=job.target.gpu,
        device=job.device.name if job.device else "", mode=job.mode,
        status=Status.PASSED, evidence=Evidence.MEASURED if job.emulator is None else Evidence.MODELLED,
        ranking_by=job.problem.ranking_by,
        seed=seed if seed is not None else secrets.randbits(31), usage=usage, compile=compiled, system=system,
        isolation=earlier.isolation if earlier else "process",
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


def _score(job: Job, results: Sequence[CaseResult], status: Status) -> float | None:
    """The ranking score, only if every benchmark case of the problem passed and was timed."""
    times = {r.case.name: r.stats.median for r in results if r.case.group == "benchmarks" and r.stats is not None}
    wanted = [case.name for case in job.problem.benchmarks]
    if status is not Status.PASSED or not wanted or any(name not in times for name in wanted):
        return None
    return model.score([times[name] for name in wanted], job.problem.ranking_by)
