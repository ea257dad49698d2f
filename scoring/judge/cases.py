# SPDX-License-Identifier: MIT
"""Has the cases of one job judged: starts workers, replaces those that die, and times in several fresh ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from scoring.ipc import wire
from scoring.ipc.arena import ArenaError
from scoring.ipc.chain_library import ChainLibrary
from scoring.ipc.emulator import modelled_band, modelled_seconds
from scoring.ipc.requests import Load, PythonSpec
from scoring.ipc.template import UnsupportedData
from scoring.judge import (
    calibration,
    gpu_lock,
    intervals,
    modelled_race,
    problem_files,
    rivals,
    timing,
    worker_process,
)
from scoring.judge.budget import TooLarge
from scoring.judge.calibration import Overhead
from scoring.judge.case_run import CaseRun
from scoring.judge.chain_verifier import ChainVerifier
from scoring.judge.check import Verdict
from scoring.judge.job import Contestant
from scoring.judge.modelled_run import ModelledRun
from scoring.judge.replay import Replayer
from scoring.judge.rivals import RivalFailed
from scoring.judge.rounds import Rounds
from scoring.judge.seeds import SeedSource
from scoring.judge.timed import Timed, pooled
from scoring.judge.worker_process import WorkerFailure
from scoring.problem import ProblemError, ProblemNeeds
from scoring.record import Case, CaseResult, Facts, Mode, Stats, Status

if TYPE_CHECKING:
    from scoring.judge.job import Job


MAX_HUNG = 2         # cases of a job that may run into a deadline before the others are left alone


def needed(job: Job) -> list[Path]:
    """The files a worker loads in this job, for it sees no others of ours."""
    others = (rival.contestant for rival in job.rivals)
    contestants = (each.spec for each in (job.contestant, *job.peers, *others) if each is not None)
    files = [name for each in (job.emulator, job.chain, *contestants) if each is not None for name in each.files]
    return [Path(name) for name in dict.fromkeys(files)]


@dataclass
class Progress:
    """A case on its way through the processes that judge it: what they found so far, and its ``newest`` result, which
    stands if it has ``ended`` or no process is left."""

    seeds: SeedSource
    slots: int = 0                       # over which its calls rotate, as the first process chose
    failed: dict[str, tuple[Status, str]] = field(default_factory=dict)      # rivals that are out of the race
    timed: list[Timed] = field(default_factory=list)
    seconds: float = 0.0
    newest: CaseResult | None = None
    ended: bool = False


class JobRunner:
    """Runs the cases of one job, replacing the worker when it dies.

    ``facts`` are those of the job before anything ran. ``progress(text)`` hears what happens; ``so_far(results, left)``
    is called after every case but the last, with the cases that are left to judge.
    """

    def __init__(
        self, job: Job, facts: Facts, seed: int, progress: Callable[[str], None] = lambda text: None,
        so_far: Callable[[Sequence[CaseResult], Sequence[Case]], None] = lambda results, left: None,
    ):
        self.job = job
        self.progress, self.so_far = progress, so_far
        self.seeds: SeedSource = SeedSource(seed)
        self.kept = _kept(job.earlier.cases) if job.earlier is not None else {}     # by the label of its seeds
        self.worker: worker_process.WorkerProcess | None = None
        self.replayer: Replayer | None = None
        self.unloadable: WorkerFailure | None = None
        self.hung = 0                           # cases that ran into a deadline
        self.untried: tuple[Case, ...] = ()     # those left when too many had hung
        self.facts = facts
        self.versions: dict[str, Any] = {}      # of what the worker runs on
        self.protocol = job.earlier.protocol if job.earlier is not None else ""
        self.isolation = ""
        self.library: ChainLibrary | None = None
        self.overheads: list[dict[str, tuple[Overhead, ...]]] = []      # of every process, by the case's group and name
        self.process = 0             # which of those that time is at work
        self.lost_rivals: dict[str, tuple[Status, str]] = {}      # those that took a worker with them
        self.deadline = time.monotonic() + job.limits.job_seconds

    def run(self) -> list[CaseResult]:
        """Check the tests; then, in a timing mode and only if all passed, check and time the benchmarks.

        Raises ``ProblemError`` if the problem's own files do not fit together.
        """
        if not self.job.problem.native:
            self._meet_contest()
        problem_files.check(self.job.problem)
        timed = self.job.mode in (Mode.BENCHMARK, Mode.LEADERBOARD)
        tests = [case for case in self.job.cases if case.group == "tests"]
        benchmarks = [case for case in self.job.cases if case.group != "tests" and timed]
        skipped = [case for case in (*tests, *benchmarks) if self._too_large(case)]
        tests = [case for case in tests if case not in skipped]
        benchmarks = [case for case in benchmarks if case not in skipped]
        for case in skipped:
            self._skip(case, self.job.limits.too_large)
        if not self.job.torch_device.startswith("cuda"):
            return self._judged(tests, benchmarks, timed)
        properties = torch.cuda.get_device_properties(self.job.torch_device)
        name = str(getattr(properties, "uuid", self.job.torch_device))      # an index is another GPU in another process
        wait = partial(self.progress, f"{self.job.kernel}: waiting for another judgement on {self.job.target.gpu}")
        with gpu_lock.holding(name, wait, shared=not timed) as alone:
            if not alone:
                self.facts = replace(
                    self.facts, device_lock="none could be had: judgements at the same time disturb one another")
            try:
                return self._judged(tests, benchmarks, timed)
            finally:
                self.close()

    def _meet_contest(self) -> None:
        """Load a contest's reference, which says what is to be called. Raises ``ProblemError``."""
        problem, contestant = self.job.problem, self.job.contestant
        if self.job.torch_device == "cpu":
            problem.without_gpu()
        problem.ranks_have_gpus = bool(self.job.gpus)
        if problem.entry_points and contestant and isinstance(contestant.spec, PythonSpec):
            spec = replace(contestant.spec, entries=problem.entry_points.names)
            self.job = replace(self.job, contestant=replace(contestant, spec=spec))

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
        if self.replayer is not None:
            self.replayer.close()

    def _judged(self, tests: Sequence[Case], benchmarks: Sequence[Case], timed: bool) -> list[CaseResult]:
        if timed and self.job.chain is not None:
            self.library = ChainLibrary(self.job.chain.library, self.job.torch_device, self.job.chain.preload)
            fresh = {_label(case): case for case in benchmarks or tests if f"{_label(case)}#1" not in self.kept}
            # All of them before a submission is started. A GPU's differ by less than its clock resolves: one will do.
            for process in range(self.job.processes if self.job.torch_device == "cpu" else 1):
                self.overheads.append(calibration.calibrate(
                    self.job, self.library, fresh, self._worker, self.progress, process))
        if self.job.stand_in or self.job.gpus:      # no time of a CPU says anything about the GPU
            return self._all([*tests, *benchmarks], [], timed=False)
        if timed and not benchmarks:        # a slow device: the cases it can do are worth a time, if not a score
            return self._all(tests, [], timed=True)
        results = self._all(tests, benchmarks, timed=False)
        if all(result.status is Status.PASSED for result in results):
            results += self._all(benchmarks, [], timed=True, before=results)
        return results

    def _all(
        self, cases: Sequence[Case], later: Sequence[Case], timed: bool, before: Sequence[CaseResult] = (),
    ) -> list[CaseResult]:
        """The results of ``cases``, of which those ``before`` are not; ``later`` ones follow if all of these pass.

        What is timed goes through several processes one after the other, each of which times all cases.
        """
        ways = [Progress(self.seeds.of(case)) for case in cases]
        for way in ways:
            kept = self.kept.get(way.seeds.label)
            if kept is not None and not (timed and kept.stats is None):
                way.newest, way.ended = kept, True
        processes = self.job.processes if timed else 1
        longest = 0.0
        for self.process in range(processes):
            started = time.monotonic()
            if self.process:
                if started + longest > self.deadline:      # fewer processes are better than no time
                    break
                self.close()
            for index, (case, way) in enumerate(zip(cases, ways, strict=True), 1):
                if not way.ended:
                    try:
                        self._one(case, way, timed, f"{index}/{len(cases)}", processes)
                    except TooLarge as error:
                        self._skip(case, f"{case.name} is too large for this machine ({error})")
                        way.ended = True
                        continue
                if self.unloadable is not None and self.process == 0:
                    return []
                # Once all have a time, the record is complete but for the last case until all processes are through.
                done = index if self.process == 0 else len(cases) - 1
                results = [way.newest for way in ways[:done] if way.newest is not None]
                if self.hung >= MAX_HUNG and (rest := tuple(cases[index:])):
                    self.untried = rest
                    return results
                good = all(result.status is Status.PASSED for result in results)
                if left := [*cases[done:], *(later if good else ())]:
                    self.so_far([*before, *results], left)
            longest = max(longest, time.monotonic() - started)
        return [way.newest for way in ways if way.newest is not None]

    def _one(self, case: Case, way: Progress, timed: bool, place: str, processes: int) -> None:
        """Judge a case in the process at hand; a failure ends it."""
        which = f", process {self.process + 1} of {processes}" if processes > 1 else ""
        self.progress(f"{self.job.kernel} on {self.job.target.gpu}: {case.name} ({place}{which})")
        started = time.monotonic()
        result = self._case(case, way, timed)
        way.seconds += time.monotonic() - started
        if way.newest is not None and result.status is Status.TIMEOUT and time.monotonic() > self.deadline:
            return                     # what earlier processes told stands
        self.hung += result.status is Status.TIMEOUT
        way.newest = replace(result, seconds=way.seconds)
        way.ended = result.status is not Status.PASSED

    def _case(self, case: Case, way: Progress, timed: bool) -> CaseResult:
        """The result of a case by now; it starts again, in a new worker, without every rival that fails in it."""
        way.failed |= self.lost_rivals
        while True:
            try:
                return self._attempt(case, way, timed)
            except RivalFailed as rival:
                self.close()           # whatever the rival did to memory or device stays with its worker
                way.failed[rival.name] = rival.status, str(rival)
                if rival.lost:
                    self.lost_rivals[rival.name] = rival.status, str(rival)
                self.progress(f"{self.job.kernel}: {case.name} again without {rival.name}: {rival.status}")

    def _attempt(self, case: Case, way: Progress, timed: bool) -> CaseResult:
        """The result of a case beside the rivals that have not failed in it. Raises ``RivalFailed``."""
        if time.monotonic() > self.deadline:
            return CaseResult(case, Status.TIMEOUT, message=f"the job's {self.job.limits.job_seconds:g} s are over")
        run: CaseRun | None = None
        try:
            with (run := self._prepare(case, way.seeds)):
                if timed and isinstance(run, ModelledRun):
                    return self._modelled(case, run, way)
                verdict, estimate = run.check()
                if not verdict.passed or not timed or self.job.emulator is not None:
                    return self._checked(case, run, verdict)
                return self._time(case, way, run, estimate, verdict.message)
        except WorkerFailure as failure:
            if not failure.alive or failure.status is Status.RUNTIME_ERROR:
                self.close()           # a device error outlives the call that caused it
            return self._result(case, failure.status, str(failure), run.seed if run else 0)
        except ArenaError as error:
            return self._result(case, Status.UNAVAILABLE, str(error))
        except ProblemNeeds as error:
            return self._result(case, Status.UNAVAILABLE, str(error), run.seed if run else 0)
        except (UnsupportedData, ProblemError) as error:
            self.facts = replace(self.facts, problem_broken=self.facts.problem_broken or str(error))
            return self._result(case, Status.UNAVAILABLE, str(error), run.seed if run else 0)

    def _prepare(self, case: Case, seeds: SeedSource) -> CaseRun:
        job = self.job
        assert job.contestant is not None
        if self.worker is None or not self.worker.alive:
            self.worker = self._worker()
            self.versions["torch"] = self.worker.facts.get("torch", "")
            try:
                if job.emulator is not None:
                    self.worker.request(job.emulator, job.limits.load_seconds)
                self.worker.request(Load(job.contestant.name, job.contestant.spec), job.limits.load_seconds)
            except WorkerFailure as failure:
                self.unloadable = failure
                raise
        kind = ModelledRun if job.emulator is not None and job.emulator.modelled else CaseRun
        return kind.of(job, case, self.worker, seeds)

    def _worker(self) -> worker_process.WorkerProcess:
        """A new worker, which knows the chain before anything else."""
        job = self.job
        index = int(job.torch_device.partition(":")[2]) if job.torch_device.startswith("cuda") else None
        worker = worker_process.WorkerProcess(
            index, gpus=job.gpus, files=needed(job), sandbox=job.sandbox, until=self.deadline,
            largest_answer=wire.MAX_COUNTED if job.emulator is not None else wire.MAX_ANSWER,
            variables=job.emulator.variables if job.emulator is not None else None)
        self.isolation = worker.isolation
        if worker.isolation_reasons:
            self.facts = replace(self.facts, isolation_reasons=tuple(worker.isolation_reasons))
        if job.chain is not None and self.library is not None:
            worker.request(job.chain, job.limits.load_seconds)
        return worker

    def _skip(self, case: Case, why: str) -> None:
        """Leave a case out, and say so in the record."""
        facts = self.facts
        reasons = facts.cases_skipped_why.split("; ") if facts.cases_skipped_why else []
        self.facts = replace(facts, cases_skipped=(*facts.cases_skipped, case.name),
                             cases_skipped_why="; ".join(dict.fromkeys([*reasons, why])))

    def _rivals(self, failed: Mapping[str, tuple[Status, str]]) -> list[Contestant]:
        return [rival.contestant for rival in self.job.rivals if rival.contestant and rival.name not in failed]

    def _checked(self, case: Case, run: CaseRun, verdict: Verdict) -> CaseResult:
        """The result of a case that no clock was held to."""
        result = self._result(case, verdict.status, verdict.message, run.seed)
        return replace(result, findings=run.findings, counters=run.counters, wrong=verdict.wrong)

    def _replays(self) -> Replayer:
        """What runs recorded launches again, for as long as the job."""
        if self.replayer is None:
            job = self.job
            assert job.emulator is not None
            self.replayer = Replayer(job.emulator, job.sandbox, self.deadline, job.limits.call_seconds)
        return self.replayer

    def _modelled(self, case: Case, run: ModelledRun, way: Progress) -> CaseResult:
        """The result of a case on an emulated device, whose time comes from the counters of the replay."""
        verdict = run.replay(run.contestant, self._replays())
        result = self._checked(case, run, verdict)
        seconds = modelled_seconds(run.counters) if verdict.passed else None
        if seconds is None:
            return result
        if faster := timing.beats_hardware(seconds, result.roofline_seconds):      # the model is no proof either
            return self._result(case, Status.TIMING_MISMATCH, faster, run.seed)
        self.protocol = timing.MODEL
        race = modelled_race.race(
            run, seconds, self.job.rivals, self._rivals(way.failed), way.failed, self._replays(),
            result.roofline_seconds) if self.job.rivals else None
        band = modelled_band(run.counters)
        stats = replace(intervals.statistics([[seconds]]), ci_low=seconds / (1 + band), ci_high=seconds * (1 + band))
        return replace(result, stats=stats, race=race)

    def _time(self, case: Case, way: Progress, run: CaseRun, estimate: float, message: str) -> CaseResult:
        """The result after one more process has timed the case."""
        size, cache = run.bytes_per_slot, self.job.target.llc_bytes
        on_host = self.job.torch_device == "cpu"
        inputs = sum(spec.nbytes for spec in run.slots[0].memory.layout.inputs)
        way.slots = way.slots or timing.slots_needed(
            size, cache, estimate, self.job.slot_memory, on_host, inputs if self.job.rivals else None)
        overheads = self.overheads[min(self.process, len(self.overheads) - 1)] if self.overheads else {}
        fitting = overheads.get(_label(case), ())
        verifier = ChainVerifier(run, self.library) if self.library is not None and fitting else None
        part = Rounds(
            run, self.job.peers, way.slots, self.job.timing.share(self.job.processes), self.job.telemetry, verifier,
            fitting, self._rivals(way.failed), self.process).time()
        if not part.verdict.passed:
            wrong = self._result(case, part.verdict.status, part.verdict.message, part.seed)
            return replace(wrong, wrong=part.verdict.wrong)
        way.timed.append(part)
        way.failed |= part.declined
        outcome, name = pooled(way.timed), run.contestant.name
        stats = outcome.stats[name]
        protocol = timing.named(outcome.protocol, timing.is_cold(way.slots, size, cache))
        if protocol not in self.protocol.split(" + "):      # more than one: no leaderboard may mix it in
            self.protocol = " + ".join(filter(None, [self.protocol, protocol]))
        environment = {
            **outcome.environment, "protocol": protocol, "cache": timing.cache_state(way.slots, size, cache),
        }
        entrants = {rival.name for rival in self.job.rivals}
        result = self._result(
            case, Status.PASSED, message, part.seed, stats=stats, environment=environment,
            peers={peer: value for peer, value in outcome.stats.items() if peer != name and peer not in entrants},
        )
        result = replace(result, calls=outcome.calls, warm=outcome.warm)
        if outcome.turns is not None or self.job.rivals:
            cold = timing.racing_cold(way.slots, inputs, cache)
            result = replace(result, race=rivals.race(
                outcome.turns or rivals.Turns({}), name, self.job.rivals, way.failed, cold,
                confirmed=outcome.confirmed))
        if faster := timing.beats_hardware(stats.median, result.roofline_seconds):
            return self._result(case, Status.TIMING_MISMATCH, faster, part.seed)
        return result

    def _result(
        self, case: Case, status: Status, message: str, seed: int = 0, stats: Stats | None = None,
        environment: Mapping[str, Any] | None = None, peers: Mapping[str, Stats] | None = None,
    ) -> CaseResult:
        flops, nbytes, _peak = self.job.work(case)
        floor, bound = self.job.roofline(case)
        return CaseResult(
            case, status, seed, message, stats, flops, nbytes, floor, bound, peers or {}, environment or {},
        )

    def _too_large(self, case: Case) -> bool:
        flops, nbytes, _peak = self.job.work(case)
        limits = self.job.limits
        of_tests = flops > limits.test_flops or nbytes > limits.test_bytes
        return flops > limits.case_flops or (case.group == "tests" and of_tests)


def _kept(results: Sequence[CaseResult]) -> dict[str, CaseResult]:
    """Those that passed, by the label of the seeds each case got."""
    seeds = SeedSource(0)
    labelled = [(seeds.of(result.case).label, result) for result in results]
    return {label: result for label, result in labelled if result.status is Status.PASSED}


def _label(case: Case) -> str:
    return f"{case.group}/{case.name}"
