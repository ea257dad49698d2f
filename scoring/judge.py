# SPDX-License-Identifier: MIT
"""``score(job) -> Record``: check every case, then time, never otherwise.

This process holds what decides (inputs, references, verdict, clock); the code under test runs in a worker that is
replaced whenever it dies.
"""

from __future__ import annotations

import datetime
import platform
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backends.base import CompileError, SourceError
from scoring import emulation, model, timing
from scoring.model import Case, CaseResult, Evidence, Mode, Record, Stats, Status
from scoring.sandbox.policy import Policy

if TYPE_CHECKING:
    from backends.base import Binary, Device, Target
    from backends.source import KernelSource
    from scoring.calibration import Overhead
    from scoring.caserun import CaseRun, Contestant, SeedSource
    from scoring.chain import ChainLibrary
    from scoring.check import Verdict
    from scoring.problem import Problem
    from scoring.session import WorkerFailure, WorkerProcess


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
    reason: str = ""                 # why it cannot run here

    @property
    def torch_device(self) -> str:
        """Where judge and worker keep tensors: an emulated device's memory is the host's."""
        if self.device is None or self.device.emulated or self.target.backend == "cpu":
            return "cpu"
        return f"cuda:{self.device.index}"

    def compiled_only(self) -> Job:
        """The same job without anything to run: what ``build`` shows."""
        return replace(self, contestant=None, device=None, reason=self.reason or "compiled; not asked to run")


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
    """Score one kernel on one target. Failures of the code under test become statuses; nothing is raised for them."""
    started = time.monotonic()
    base = _skeleton(job)
    if job.contestant is None or job.device is None:
        return replace(base, status=Status.UNAVAILABLE, message=job.reason, seconds=time.monotonic() - started)
    from scoring.problem import ProblemError

    referee = _Referee(job, base.seed)
    try:
        results = referee.run()
    except ProblemError as error:       # of a file that all cases need
        referee.facts["problem_broken"] = str(error)
        results = [CaseResult(case, Status.UNAVAILABLE, message=str(error)) for case in job.cases]
    finally:
        referee.close()
    if not results:                     # no evidence is no pass
        message = f"no case was run: {referee.facts.get('cases_skipped_why') or 'none was selected'}"
        return replace(
            base, status=Status.UNAVAILABLE, message=message, seconds=time.monotonic() - started,
            system={**base.system, **referee.facts},
        )
    status = model.worst([result.status for result in results])
    message = next((r.message for r in results if r.status is status and status is not Status.PASSED), "")
    return replace(
        base, status=status, message=message, cases=tuple(results), protocol=referee.protocol,
        score=_score(job, results, status), seconds=time.monotonic() - started,
        isolation=referee.isolation or base.isolation,
        system={**base.system, **referee.facts},
    )


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
    system = {
        "python": sys.version.split()[0], "platform": platform.platform(), "machine": platform.machine(),
        "driver": job.device.driver if job.device else "", "peaks": dict(job.target.peaks),
        "peaks_source": job.target.peaks_source, "llc_bytes": job.target.llc_bytes,
        "emulated": bool(job.device and job.device.emulated),
    }
    if job.emulator is not None:
        system["checks"] = job.emulator["options"]["checks"]
    return Record(
        id=secrets.token_hex(16), created=_now(),
        problem=job.problem.name, kernel=job.kernel, digest=job.digest, backend=job.target.backend,
        target=job.target.arch, gpu=job.target.gpu, device=job.device.name if job.device else "", mode=job.mode,
        status=Status.PASSED, evidence=Evidence.MEASURED if job.emulator is None else Evidence.MODELLED,
        ranking_by=job.problem.ranking_by,
        seed=job.seed if job.seed is not None else secrets.randbits(31), usage=usage, compile=compiled, system=system,
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


def _needed(job: Job) -> list[Path]:
    """The files a worker loads in this job, for it sees no others of ours."""
    found: list[str] = [str(job.emulator["library"])] if job.emulator is not None else []
    chain = [job.chain] if job.chain is not None else []
    for load in (*chain, *(contestant.load for contestant in (job.contestant, *job.peers) if contestant is not None)):
        found += [load[name] for name in ("library", "path") if name in load]
        found += [*load.get("preload", ()), *load.get("sys_path", ())]
    return [Path(name) for name in dict.fromkeys(found)]


class _Referee:
    """Runs the cases of one job, replacing the worker when it dies."""

    def __init__(self, job: Job, seed: int):
        from scoring.caserun import SeedSource

        self.job = job
        self.seeds: SeedSource = SeedSource(seed)
        self.worker: WorkerProcess | None = None
        self.unloadable: WorkerFailure | None = None
        self.facts: dict[str, Any] = {}
        self.protocol = ""
        self.isolation = ""
        self.library: ChainLibrary | None = None
        self.overheads: dict[str, tuple[Overhead, ...]] = {}      # by the case's group and name
        self.deadline = time.monotonic() + job.limits.job_seconds

    def run(self) -> list[CaseResult]:
        """Check the tests; then, in a timing mode and only if all passed, check and time the benchmarks."""
        tests = [case for case in self.job.cases if case.group == "tests"]
        benchmarks = [case for case in self.job.cases if case.group == "benchmarks"]
        skipped = [case for case in (*tests, *benchmarks) if self._too_large(case)]
        tests = [case for case in tests if case not in skipped]
        benchmarks = [case for case in benchmarks if case not in skipped]
        if skipped:
            self.facts["cases_skipped"] = [case.name for case in skipped]
            why = f"cases of more than {self.job.limits.case_flops:.3g} FLOP are left out"
            if self.job.emulator is not None:
                why += " on an emulated device (limits.case_gflop of the settings)"
            self.facts["cases_skipped_why"] = why
        timed = self.job.mode in (Mode.BENCHMARK, Mode.LEADERBOARD)
        if timed and self.job.chain is not None:
            self._calibrate(self.job.chain, benchmarks or tests)
        if timed and not benchmarks:        # a slow device: the cases it can do are worth a time, if not a score
            return self._all(tests, timed=True)
        results = self._all(tests, timed=False)
        if timed and all(result.status is Status.PASSED for result in results):
            results += self._all(benchmarks, timed=True)
        return results

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()

    def _all(self, cases: Sequence[Case], timed: bool) -> list[CaseResult]:
        results = []
        for index, case in enumerate(cases, 1):
            self.job.progress(f"{self.job.kernel} on {self.job.target.gpu}: {case.name} ({index}/{len(cases)})")
            started = time.monotonic()
            result = self._case(case, timed)
            results.append(replace(result, seconds=time.monotonic() - started))
        return results

    def _case(self, case: Case, timed: bool) -> CaseResult:
        from scoring.arena import ArenaError
        from scoring.layout import UnsupportedData
        from scoring.problem import ProblemError
        from scoring.session import WorkerFailure

        if time.monotonic() > self.deadline:
            return CaseResult(case, Status.TIMEOUT, message=f"the job's {self.job.limits.job_seconds:g} s are over")
        seeds = self.seeds.of(case)
        run: CaseRun | None = None
        try:
            with (run := self._prepare(case, seeds)):
                verdict, estimate = run.check(1 if self.job.emulator and timed else 2)
                if not verdict.passed or not timed or self.job.emulator is not None:
                    return self._checked(case, run, verdict, timed)
                return self._time(case, run, estimate, verdict.message)
        except WorkerFailure as failure:
            if not failure.alive or failure.status is Status.RUNTIME_ERROR:
                self.close()           # a device error outlives the call that caused it
            return self._result(case, failure.status, str(failure), run.seed if run else 0)
        except ArenaError as error:
            return self._result(case, Status.UNAVAILABLE, str(error))
        except (UnsupportedData, ProblemError) as error:
            self.facts.setdefault("problem_broken", str(error))
            return self._result(case, Status.UNAVAILABLE, str(error), run.seed if run else 0)

    def _calibrate(self, chain: Mapping[str, Any], cases: Sequence[Case]) -> None:
        """What a chain over each case costs by itself, told by a worker that knows no code under test.

        A case whose chain cannot be measured (no memory, a broken problem) is left out; running it will say why.
        """
        from scoring import calibration
        from scoring.arena import ArenaError
        from scoring.caserun import SeedSource
        from scoring.chain import ChainLibrary
        from scoring.layout import UnsupportedData
        from scoring.problem import ProblemError
        from scoring.session import WorkerFailure

        job = self.job
        assert job.contestant is not None
        self.library = ChainLibrary(chain["library"], job.torch_device, chain["preload"])
        copies = not job.contestant.parameters       # a submission returns memory of its own
        wanted = []
        for case in cases:
            key = (job.problem.path, case.name, job.torch_device, copies)
            known = calibration.KNOWN.get(key, job.torch_device)
            if known:
                self.overheads[_label(case)] = known
            else:
                wanted.append((case, key))
        if not wanted:
            return
        job.progress(f"{job.kernel} on {job.target.gpu}: calibrating the judge's clock")
        with self._worker() as worker:
            for case, key in wanted:
                flops = self._work(case)[0] / 2      # about as many of bf16 as take the time of those of fp8
                worker.request(
                    "idle", job.limits.load_seconds, contestant=job.contestant.name, copies=copies, flops=flops)
                try:
                    with self._case_run(case, worker, SeedSource(secrets.randbits(31))) as run:
                        overheads = self._overheads(case, run)
                except (ArenaError, UnsupportedData, ProblemError, WorkerFailure):
                    if not worker.alive:
                        return
                    continue
                self.overheads[_label(case)] = overheads
                calibration.KNOWN.put(key, overheads)

    def _overheads(self, case: Case, run: CaseRun) -> tuple[Overhead, ...]:
        from scoring import calibration
        from scoring.caserun import claimed
        from scoring.gate import Gate

        assert self.library is not None
        run.add_slot()
        gate, name = Gate(run, self.library), run.contestant.name
        lengths: tuple[int, ...] = (1,)
        if gate.chains:
            floor, _bound = self._roofline(case)
            lengths = timing.chain_lengths(
                run.bytes_per_slot, floor, self._slot_memory(), self.job.torch_device == "cpu")
        while len(run.slots) < lengths[0]:
            run.add_blank_slot()

        def arm(links: int) -> None:
            for slot in run.slots[:links]:           # the device is ours before it is the worker's, as in a real chain
                slot.memory.refill()
                slot.memory.poison(nan=True)
            run.sync()
            gate.arm(name, run.slots[:links])

        def measured(links: int) -> Overhead:
            known = self._known_seconds(run, links)

            def go(secret: bytes) -> float:
                wall, reply = gate.go(secret)
                return wall - (claimed(reply) if known is None else known)

            if links > 1:
                return calibration.measure(partial(arm, links), gate.unseal, go, links)
            overhead = calibration.measure(partial(arm, links), lambda secret: 0.0, go, links)
            bandwidth = self.job.target.peaks.get("bytes")
            moved = 2 * run.slots[0].memory.sealed.numel() / bandwidth if bandwidth else 0.0
            return replace(overhead, wall=overhead.wall + moved)

        return tuple(measured(links) for links in lengths)

    def _known_seconds(self, run: CaseRun, links: int) -> float | None:
        """What the calls of a calibration chain take on a GPU, replayed alone; None for a host, whose clock tells."""
        if self.job.torch_device == "cpu":
            return None
        from scoring.caserun import claimed

        name, slots = run.contestant.name, [slot.name for slot in run.slots[:links]]
        run.ask("capture", contestant=name, slots=slots)
        return min(claimed(run.ask("replay", contestant=name, slots=slots)) for _replay in range(8))

    def _prepare(self, case: Case, seeds: SeedSource) -> CaseRun:
        from scoring.session import WorkerFailure

        job = self.job
        assert job.contestant is not None
        if self.unloadable is not None:      # it would fail every case alike, each after its own deadline
            raise WorkerFailure(self.unloadable.status, str(self.unloadable), alive=False)
        if self.worker is None or not self.worker.alive:
            self.worker = self._worker()
            self.facts["torch"] = self.worker.facts.get("torch", "")
            try:
                if job.emulator is not None:
                    self.worker.request("emulate", job.limits.load_seconds, **job.emulator)
                load = dict(job.contestant.load)
                self.worker.request("load", job.limits.load_seconds, contestant=job.contestant.name, **load)
            except WorkerFailure as failure:
                self.unloadable = failure
                raise
        return self._case_run(case, self.worker, seeds)

    def _worker(self) -> WorkerProcess:
        """A new worker, which knows the chain before anything else."""
        from scoring.session import WorkerProcess

        job = self.job
        index = int(job.torch_device.partition(":")[2]) if job.torch_device.startswith("cuda") else None
        worker = WorkerProcess(index, files=_needed(job), sandbox=job.sandbox)
        self.isolation = worker.isolation
        if job.chain is not None and self.library is not None:
            worker.request("chain", job.limits.load_seconds, **job.chain)
        return worker

    def _case_run(self, case: Case, worker: WorkerProcess, seeds: SeedSource) -> CaseRun:
        from scoring.caserun import CaseRun

        job = self.job
        assert job.contestant is not None
        return CaseRun(
            job.problem, case, worker, job.contestant, seeds, job.torch_device, job.target.fp8,
            job.limits.call_seconds, job.limits.first_call_seconds,
        )

    def _checked(self, case: Case, run: CaseRun, verdict: Verdict, timed: bool) -> CaseResult:
        """The result of a case that no clock was held to; on an emulated device its time comes from the counters."""
        seconds = emulation.modelled_seconds(run.counters) if timed and verdict.passed else None
        stats = timing.statistics([seconds]) if seconds is not None else None
        if stats is not None:
            self.protocol = timing.MODEL
        result = self._result(case, verdict.status, verdict.message, run.seed, stats=stats)
        return replace(result, findings=run.findings, counters=run.counters)

    def _time(self, case: Case, run: CaseRun, estimate: float, message: str) -> CaseResult:
        from scoring.gate import Gate
        from scoring.rounds import Rounds

        size, cache = run.bytes_per_slot, self.job.target.llc_bytes
        on_host = self.job.torch_device == "cpu"
        count = timing.slots_needed(size, cache, estimate, self._slot_memory(), on_host)
        overheads = self.overheads.get(_label(case), ())
        gate = Gate(run, self.library) if self.library is not None and overheads else None
        outcome = Rounds(
            run, self.job.peers, count, self.job.timing, self.job.telemetry, gate, overheads).time()
        name = run.contestant.name
        if not outcome.verdict.passed:
            return self._result(case, outcome.verdict.status, outcome.verdict.message, outcome.seed)
        stats = outcome.stats[name]
        protocol = timing.named(outcome.protocol, timing.is_cold(count, size, cache))
        if protocol not in self.protocol.split(" + "):      # more than one: no leaderboard may mix it in
            self.protocol = " + ".join(filter(None, [self.protocol, protocol]))
        environment = {
            **outcome.environment, "protocol": protocol, "cache": timing.cache_state(count, size, cache),
        }
        result = self._result(
            case, Status.PASSED, message, outcome.seed, stats=stats, environment=environment,
            peers={peer: value for peer, value in outcome.stats.items() if peer != name},
        )
        floor = result.roofline_seconds
        if floor is not None and stats.median < floor:
            text = f"{stats.median * 1e6:.2f} µs is faster than the hardware allows ({floor * 1e6:.2f} µs)"
            return self._result(case, Status.TIMING_MISMATCH, text, outcome.seed)
        return result

    def _result(
        self, case: Case, status: Status, message: str, seed: int = 0, stats: Stats | None = None,
        environment: Mapping[str, Any] | None = None, peers: Mapping[str, Stats] | None = None,
    ) -> CaseResult:
        flops, nbytes, _peak = self._work(case)
        floor, bound = self._roofline(case)
        return CaseResult(
            case, status, seed, message, stats, flops, nbytes, floor, bound, peers or {}, environment or {},
        )

    def _roofline(self, case: Case) -> tuple[float | None, str]:
        flops, nbytes, peak = self._work(case)
        peaks = self.job.target.peaks
        return timing.roofline(flops, nbytes, peaks.get(peak), peaks.get("bytes"))

    def _work(self, case: Case) -> tuple[float, float, str]:
        """FLOP, bytes and the peak they are held against; zeros for a problem that does not say."""
        if not self.job.problem.native:
            return 0.0, 0.0, ""
        binding = self.job.problem.binding
        params = case.params
        return float(binding.flops(params)), float(binding.bytes_moved(params)), str(binding.PEAK(params))

    def _too_large(self, case: Case) -> bool:
        limit = self.job.limits.case_flops
        return limit is not None and self._work(case)[0] > limit

    def _slot_memory(self) -> int:
        """Bytes all slots of a case may take: the judge holds a private copy and references besides."""
        device = self.job.device
        if self.job.torch_device == "cpu" or device is None or not device.memory_bytes:
            return 1 << 30
        return device.memory_bytes // 6


def _label(case: Case) -> str:
    return f"{case.group}/{case.name}"
