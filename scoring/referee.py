# SPDX-License-Identifier: MIT
"""Has the cases of one job judged: calibrates the judge's clock, starts workers and replaces those that die."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from scoring import emulation, exclusive, session, timing
from scoring.arena import ArenaError
from scoring.caserun import CaseRun, SeedSource, Slot, claimed
from scoring.chain import calibration
from scoring.chain.calibration import Overhead
from scoring.chain.gate import Gate
from scoring.chain.library import ChainLibrary
from scoring.chain.rounds import GATED_SLOTS, Rounds
from scoring.check import Verdict
from scoring.layout import UnsupportedData
from scoring.model import Case, CaseResult, Mode, Stats, Status
from scoring.problem import ProblemError
from scoring.session import WorkerFailure

if TYPE_CHECKING:
    from scoring.judge import Job


def needed(job: Job) -> list[Path]:
    """The files a worker loads in this job, for it sees no others of ours."""
    found: list[str] = [str(job.emulator["library"])] if job.emulator is not None else []
    chain = [job.chain] if job.chain is not None else []
    for load in (*chain, *(contestant.load for contestant in (job.contestant, *job.peers) if contestant is not None)):
        found += [load[name] for name in ("library", "path") if name in load]
        found += [*load.get("preload", ()), *load.get("sys_path", ())]
    return [Path(name) for name in dict.fromkeys(found)]


class Referee:
    """Runs the cases of one job, replacing the worker when it dies.

    ``so_far(results, left)`` is called after every case but the last, with the cases that are left to judge.
    """

    def __init__(
        self, job: Job, seed: int,
        so_far: Callable[[Sequence[CaseResult], Sequence[Case]], None] = lambda results, left: None,
    ):
        self.job = job
        self.so_far = so_far
        self.seeds: SeedSource = SeedSource(seed)
        self.kept = _kept(job.earlier.cases) if job.earlier is not None else {}     # by the label of its seeds
        self.worker: session.WorkerProcess | None = None
        self.unloadable: WorkerFailure | None = None
        self.facts: dict[str, Any] = {}
        self.protocol = job.earlier.protocol if job.earlier is not None else ""
        self.isolation = ""
        self.library: ChainLibrary | None = None
        self.overheads: dict[str, tuple[Overhead, ...]] = {}      # by the case's group and name
        self.deadline = time.monotonic() + job.limits.job_seconds

    def run(self) -> list[CaseResult]:
        """Check the tests; then, in a timing mode and only if all passed, check and time the benchmarks."""
        timed = self.job.mode in (Mode.BENCHMARK, Mode.LEADERBOARD)
        tests = [case for case in self.job.cases if case.group == "tests"]
        benchmarks = [case for case in self.job.cases if case.group == "benchmarks" and timed]
        skipped = [case for case in (*tests, *benchmarks) if self._too_large(case)]
        tests = [case for case in tests if case not in skipped]
        benchmarks = [case for case in benchmarks if case not in skipped]
        if skipped:
            self.facts["cases_skipped"] = [case.name for case in skipped]
            emulated = self.job.emulator is not None
            self.facts["cases_skipped_why"] = (
                f"of more than {(self.job.limits.case_flops or 0) / 1e9:g} GFLOP{' on an emulated device' * emulated} "
                f"(limits.case_gflop.{emulation.EMULATED if emulated else self.job.target.backend} of the settings)")
        if not self.job.torch_device.startswith("cuda"):
            return self._judged(tests, benchmarks, timed)
        properties = torch.cuda.get_device_properties(self.job.torch_device)
        name = str(getattr(properties, "uuid", self.job.torch_device))      # an index is another GPU in another process
        wait = partial(self.job.progress, f"{self.job.kernel}: waiting for another judgement on {self.job.target.gpu}")
        with exclusive.holding(name, wait, shared=not timed) as alone:
            if not alone:
                self.facts["device_lock"] = "none could be had: judgements at the same time disturb one another"
            try:
                return self._judged(tests, benchmarks, timed)
            finally:
                self.close()

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()

    def _judged(self, tests: Sequence[Case], benchmarks: Sequence[Case], timed: bool) -> list[CaseResult]:
        if timed and self.job.chain is not None:
            self._calibrate(self.job.chain, benchmarks or tests)
        if timed and not benchmarks:        # a slow device: the cases it can do are worth a time, if not a score
            return self._all(tests, [], timed=True)
        results = self._all(tests, benchmarks, timed=False)
        if all(result.status is Status.PASSED for result in results):
            results += self._all(benchmarks, [], timed=True, before=results)
        return results

    def _all(
        self, cases: Sequence[Case], later: Sequence[Case], timed: bool, before: Sequence[CaseResult] = (),
    ) -> list[CaseResult]:
        """The results of ``cases``, of which those ``before`` are not; ``later`` ones follow if all of these pass."""
        results: list[CaseResult] = []
        for index, case in enumerate(cases, 1):
            self.job.progress(f"{self.job.kernel} on {self.job.target.gpu}: {case.name} ({index}/{len(cases)})")
            started = time.monotonic()
            seeds = self.seeds.of(case)
            result = self.kept.get(seeds.label)
            if result is None or (timed and result.stats is None):
                result = replace(self._case(case, seeds, timed), seconds=time.monotonic() - started)
            results.append(result)
            good = all(result.status is Status.PASSED for result in results)
            if left := [*cases[index:], *(later if good else ())]:
                self.so_far([*before, *results], left)
        return results

    def _case(self, case: Case, seeds: SeedSource, timed: bool) -> CaseResult:
        if time.monotonic() > self.deadline:
            return CaseResult(case, Status.TIMEOUT, message=f"the job's {self.job.limits.job_seconds:g} s are over")
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
        job = self.job
        assert job.contestant is not None
        self.library = ChainLibrary(chain["library"], job.torch_device, chain["preload"])
        copies = not job.contestant.parameters       # a submission returns memory of its own
        wanted = []
        for case in cases:
            if f"{_label(case)}#1" in self.kept:
                continue
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
        assert self.library is not None
        run.add_slot()
        gate, name = Gate(run, self.library), run.contestant.name
        lengths: tuple[int, ...] = (1,)
        if gate.chains:
            floor, _bound = self._roofline(case)
            lengths = timing.chain_lengths(
                run.bytes_per_slot, floor, self._slot_memory(), self.job.torch_device == "cpu")
        ways = (True, False) if gate.open_doors() else (False,)
        apart = max(1, min(GATED_SLOTS, self._slot_memory() // run.bytes_per_slot)) if gate.doors else 1
        while len(run.slots) < (apart if lengths == (1,) else lengths[0]):
            run.add_blank_slot()

        def arm(slots: Sequence[Slot], doors: bool) -> None:
            for slot in slots:           # the device is ours before it is the worker's, as in a real chain
                slot.memory.refill()
                slot.memory.poison(nan=True)
            run.sync()
            if not gate.arm(name, slots, doors, opened=doors and lengths == (1,)) and doors:
                raise WorkerFailure(Status.RUNTIME_ERROR, "the judge's own chain cannot be captured", alive=True)

        def measured(links: int, doors: bool) -> Overhead:
            slots = run.slots[: apart if doors and links == 1 else links]
            known = self._known_seconds(run, len(slots))

            def phases(seal: bytes, begin: bytes) -> tuple[float, float]:
                if doors and links == 1:
                    walls = [answer.wall for answer in gate.stood_apart([begin] * len(slots))]
                    return 0.0, calibration.quantile(walls, 0.5) - (known or 0.0) / len(slots)
                answer = gate.stood(seal, begin, links) if doors else gate.asked(seal, begin, links, together=False)
                return answer.unseal, answer.wall - (answer.claim if known is None else known)

            samples = calibration.DOORS_SAMPLES if gate.doors else calibration.SAMPLES
            overhead = calibration.measure(
                partial(arm, slots, doors), phases, links, self.job.torch_device, samples, doors)
            bandwidth = self.job.target.peaks.get("bytes")
            if links > 1 or not bandwidth:
                return overhead
            return replace(overhead, wall=overhead.wall + 2 * run.slots[0].memory.sealed.numel() / bandwidth)

        return tuple(measured(links, doors) for links in lengths for doors in ways)

    def _known_seconds(self, run: CaseRun, links: int) -> float | None:
        """What the calls of a calibration chain take on a GPU, replayed alone; None for a host, whose clock tells."""
        if self.job.torch_device == "cpu":
            return None
        name, slots = run.contestant.name, [slot.name for slot in run.slots[:links]]
        run.ask("capture", contestant=name, slots=slots)
        return min(claimed(run.ask("replay", contestant=name, slots=slots)) for _replay in range(8))

    def _prepare(self, case: Case, seeds: SeedSource) -> CaseRun:
        job = self.job
        assert job.contestant is not None
        if self.unloadable is not None:      # it would fail every case alike, each after its own deadline
            raise WorkerFailure(self.unloadable.status, str(self.unloadable), alive=False)
        if self.worker is None or not self.worker.alive:
            self.worker = self._worker()
            self.worker.until = self.deadline
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

    def _worker(self) -> session.WorkerProcess:
        """A new worker, which knows the chain before anything else."""
        job = self.job
        index = int(job.torch_device.partition(":")[2]) if job.torch_device.startswith("cuda") else None
        worker = session.WorkerProcess(index, files=needed(job), sandbox=job.sandbox)
        self.isolation = worker.isolation
        if worker.isolation_reasons:
            self.facts["isolation_reasons"] = list(worker.isolation_reasons)
        if job.chain is not None and self.library is not None:
            worker.request("chain", job.limits.load_seconds, **job.chain)
        return worker

    def _case_run(self, case: Case, worker: session.WorkerProcess, seeds: SeedSource) -> CaseRun:
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


def _kept(results: Sequence[CaseResult]) -> dict[str, CaseResult]:
    """Those that passed, by the label of the seeds each case got."""
    seeds = SeedSource(0)
    labelled = [(seeds.of(result.case).label, result) for result in results]
    return {label: result for label, result in labelled if result.status is Status.PASSED}


def _label(case: Case) -> str:
    return f"{case.group}/{case.name}"
