# SPDX-License-Identifier: MIT
"""Timed rounds of one process: a contestant's claims, what the judge's clock allows, and the time that follows.

On a GPU a worker's events tell the time of a graph replay to a fraction of a microsecond, but they are a claim. Chains
(``chain_verifier``) give a time that is not: an upper bound nobody can talk down. A claim stands where that bound does
not contradict it; else the bound is the time. Without a GPU the chains are all there is, with the worker's claim about
the calls in them. Peers and rivals are compared by claims: with the kernel's claims in the same rounds.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from scoring.ipc.requests import Call, Capture, Load, Replay, Sweep
from scoring.judge import busy, timing
from scoring.judge.calibration import Overhead, quantile
from scoring.judge.case_run import CaseRun, claimed
from scoring.judge.chain_verifier import SINGLE_LINK_SLOTS, ChainVerifier
from scoring.judge.check import Verdict
from scoring.judge.job import Contestant
from scoring.judge.layout import equal_bits
from scoring.judge.rivals import RivalFailed
from scoring.judge.timed import Timed
from scoring.judge.worker_process import WorkerFailure
from scoring.record import Status

CHAIN_ROUNDS = 8              # at most, on a GPU: chains are run until one of them agrees with what the events say
BOUND_SHARE = 0.0             # the quantile of the chains' times that bounds a claim: the least, as jitter only adds
SINGLE_LINK_SHARE = 0.25            # … of chains of one link, where a single outlier would bound too little
# Without a chain: seconds a request may take besides the claimed interval (round trip, wake-up, launch, and the GPU
# changing from the judge's context to the worker's: 0.5 to 1 ms on an H200).
CALL_SLACK = 2e-3
COPY_BANDWIDTH = 2e9          # bytes/s, a lower bound of how fast a submission's outputs are put in place


class _Wrong(Exception):
    """The contestant itself gave a wrong answer, or claimed an impossible time."""

    def __init__(self, verdict: Verdict, seed: int):
        super().__init__(verdict.message)
        self.verdict = verdict
        self.seed = seed


class Rounds:
    """All timing of one case in one process, the ``process``-th that times it. ``verifier`` is None where the chain's
    library could not be built.

    On a host the first round is verified, but does not count, unless it alone takes all the time there is: a process
    touches its memory for the first time there.
    """

    def __init__(
        self, run: CaseRun, peers: Sequence[Contestant], slots: int, options: timing.TimingOptions,
        sample_environment: Callable[[], Mapping[str, Any]], verifier: ChainVerifier | None = None,
        overheads: Sequence[Overhead] = (), rivals: Sequence[Contestant] = (), process: int = 0,
    ):
        while len(run.slots) < slots:
            run.add_slot()
        self.run = run
        self.peers = peers
        self.rivals = rivals
        self.options = options
        self.sample_environment = sample_environment
        self.verifier = verifier
        self.overheads = overheads         # longest chain first
        self.names = tuple(slot.name for slot in run.slots)
        self.notes: dict[str, str] = {}
        self.readings: list[Mapping[str, Any]] = []
        self.turns = 0
        self.process = process
        self.order: list[tuple[str, ...]] = []
        self.shuffling = 0           # the seed of the turns
        self.same_bits: dict[str, bool] = {}
        self.declined: dict[str, tuple[Status, str]] = {}

    def time(self) -> Timed:
        """Rounds until the time is known well enough; every output of every round is verified.

        Raises ``WorkerFailure`` for the contestant itself, ``RivalFailed`` for a rival; a peer that fails is left out
        and named in the environment.
        """
        run, own = self.run, self.run.contestant.name
        request, protocol = self._protocol()
        on_device = run.torch_device.startswith("cuda")
        facts: dict[str, Any] = {"slots": len(self.names), "request": request.name()}
        watch = busy.Watch()
        try:
            samples: dict[str, list[float]] = {}
            if on_device or self.peers or self.rivals or self.verifier is None:
                samples = self._claims(request)
            raced = dict(samples)
            if self.verifier is not None:
                samples[own], judged = self._chained(self.verifier, samples.get(own, []), request)
                facts |= judged
            else:
                facts["clock"] = "claim, bounded by requests only"
            single = self._single_calls()
            warm = self._warm_calls(request) if self.options.warm else []
        except _Wrong as wrong:
            return Timed(wrong.verdict, wrong.seed)
        claim = facts.get("claim")
        confirmed = claim is None or timing.settle(claim, facts["chain"]["bound"]) == claim
        facts |= {"rounds": self.turns, **({"peer_notes": self.notes} if self.notes else {})}
        return Timed(
            Verdict(Status.PASSED), run.seed, samples, protocol, facts, self.readings, watch.so_far(), raced,
            self.shuffling, self.order, self.same_bits, self.declined, confirmed, single, warm)

    # ---- claims -----------------------------------------------------------------------------------------------------

    def _claims(self, request: type[Replay | Sweep]) -> dict[str, list[float]]:
        """Seconds per call as the worker tells them, contestants taking turns; all of them if there is no verifier."""
        run, own = self.run, self.run.contestant.name
        runners = {own: run.contestant}
        for peer in self.peers:
            try:
                self._prepare(peer, request)
                runners[peer.name] = peer
            except WorkerFailure as failure:
                if not failure.alive:
                    raise
                self.notes[peer.name] = str(failure).splitlines()[-1]
        for rival in self.rivals:
            try:
                verdict = self._prepare(rival, request, check=True)
            except WorkerFailure as failure:
                if failure.status is not Status.UNSUPPORTED:
                    raise RivalFailed(rival.name, failure.status, str(failure), not failure.alive) from failure
                self.declined[rival.name] = failure.status, str(failure)
                continue
            if not verdict.passed:       # now, before what it damaged is held against another
                raise RivalFailed(rival.name, verdict.status, verdict.message)
            runners[rival.name] = rival
        self.shuffling = run.seeds.label_seed("turns")
        samples: dict[str, list[float]] = {name: [] for name in runners}
        orders: list[list[str]] = []
        started = time.monotonic()
        while True:
            changed = [run.refresh(slot) for slot in run.slots]
            order = list(runners)
            if request is Replay and any(changed):      # a graph repeats the plain values it was captured with
                for name in order:
                    run.ask(Capture(name, self.names))
            random.Random(f"{self.shuffling}/{self.process}/{self.turns}").shuffle(order)
            answers = {}
            for name in order:
                try:
                    samples[name].append(self._claim(runners[name], request, again=len(runners) > 1))
                except _Wrong as wrong:
                    if name == own:
                        raise
                    self.notes[name] = wrong.verdict.message
                    del runners[name], samples[name]
                if self.rivals and self.turns == 0:
                    answers[name] = run.slots[0].memory.outputs()
            self._compare_bits(answers)
            orders.append(order)
            self._turn()
            if self.turns == 1 and self._warms_up(time.monotonic() - started):
                orders.clear()
                for claims in samples.values():
                    claims.clear()
                started = time.monotonic()
            elif timing.finished(samples[own], time.monotonic() - started, self.options, bool(self.rivals)):
                self.order = [tuple(name for name in order if name in samples) for order in orders]
                return samples

    def _compare_bits(self, answers: Mapping[str, Sequence[torch.Tensor]]) -> None:
        """Note of every rival whether its outputs are the kernel's, bit by bit."""
        for rival in self.rivals:
            if rival.name in answers:
                self.same_bits[rival.name] = equal_bits(answers[rival.name], answers[self.run.contestant.name])

    def _claim(self, contestant: Contestant, request: type[Replay | Sweep], again: bool) -> float:
        """One request over all slots, verified: claimed seconds per call; ``again`` if others have the same inputs.
        Raises ``_Wrong``."""
        run = self.run
        for slot in run.slots:
            slot.memory.poison(nan=self.turns % 2 == 0)
        run.sync()
        is_rival = any(contestant is rival for rival in self.rivals)
        begin = time.perf_counter()
        try:
            reply = run.worker.request(
                request(contestant.name, self.names), (1 + len(self.names)) * run.call_seconds)
        except WorkerFailure as failure:
            if not is_rival:
                raise
            raise RivalFailed(contestant.name, failure.status, str(failure), not failure.alive) from failure
        wall = time.perf_counter() - begin
        claim = claimed(reply)
        try:
            for slot in run.slots:
                verdict = run.verify_slot(slot, contestant, again=again)
                if not verdict.passed:
                    raise _Wrong(verdict, slot.seed)
            self._possible(claim, wall)
        except _Wrong as wrong:
            if not is_rival:             # a rival may have changed what the others have yet to read
                raise
            raise RivalFailed(contestant.name, wrong.verdict.status, wrong.verdict.message) from wrong
        if self.verifier is None:
            outputs = sum(spec.nbytes for spec in run.slots[0].memory.layout.outputs) * len(run.slots)
            slack = CALL_SLACK + (0.0 if contestant.parameters else outputs / COPY_BANDWIDTH)
            claim = timing.bounded(claim, wall, slack)
        return claim / len(self.names)

    def _possible(self, claim: float, wall: float) -> None:
        if not timing.possible(claim, wall):
            message = f"claimed {claim * 1e6:.6g} µs for an interval inside {wall * 1e6:.6g} µs of the judge's clock"
            raise _Wrong(Verdict(Status.TIMING_MISMATCH, message), self.run.slots[0].seed)

    def _single_calls(self) -> list[float]:
        """Claimed seconds of single calls, as many as are wanted, every one verified. Raises ``_Wrong``.

        Each uses the slot that was used longest ago, so it finds its inputs as cold as the rounds do.
        """
        run, found = self.run, []
        for number in range(self.options.calls):
            slot = run.slots[number % len(self.names)]
            run.refresh(slot)
            slot.memory.poison(nan=number % 2 == 0)
            run.sync()
            begin = time.perf_counter()
            reply = run.worker.request(Sweep(run.contestant.name, (slot.name,)), run.call_seconds)
            wall = time.perf_counter() - begin
            claim = claimed(reply)
            verdict = run.verify_slot(slot, run.contestant)
            if not verdict.passed:
                raise _Wrong(verdict, slot.seed)
            self._possible(claim, wall)
            found.append(claim)
        return found

    def _warm_calls(self, request: type[Replay | Sweep]) -> list[float]:
        """Claimed seconds per call where calls repeat one slot, verified after each turn. Raises ``_Wrong``.

        What fits into the last-level cache is read from there: a figure beside the time, never in place of it.
        """
        run, own, found = self.run, self.run.contestant.name, []
        slot = run.slots[0]
        names = (slot.name,) * timing.WARM_CALLS
        for turn in range(timing.WARM_TURNS):
            changed = run.refresh(slot)
            if request is Replay and (turn == 0 or changed):
                run.ask(Capture(own, names))
            slot.memory.poison(nan=turn % 2 == 0)
            run.sync()
            run.worker.request(Sweep(own, (slot.name,)), run.call_seconds)       # brings the slot into the cache
            begin = time.perf_counter()
            reply = run.worker.request(request(own, names), len(names) * run.call_seconds)
            wall = time.perf_counter() - begin
            claim = claimed(reply)
            verdict = run.verify_slot(slot, run.contestant)
            if not verdict.passed:
                raise _Wrong(verdict, slot.seed)
            self._possible(claim, wall)
            found.append(claim / len(names))
        return found

    # ---- the judge's clock ------------------------------------------------------------------------------------------

    def _chained(
        self, verifier: ChainVerifier, claims: list[float], request: type[Replay | Sweep]
    ) -> tuple[list[float], dict[str, Any]]:
        """Seconds per call that count, and the facts behind them; ``request`` is what made the claims. Raises
        ``_Wrong``."""
        run, on_device = self.run, self.run.torch_device.startswith("cuda")
        overhead = self._overhead(on_device)
        links, slots, doorbells = overhead.links, run.slots, overhead.doorbells
        while len(slots) < links:
            run.add_slot()
        claim = quantile(claims, 0.5) if on_device else math.nan
        trusted: list[float] = []
        paired: list[float] = []
        said: list[float] = []
        unsealing: list[float] = []
        # What could be captured for the claims can be for the chain: messages instead of doorbells then buy nothing.
        known = {doorbells: overhead} if request is Replay else {
            one.doorbells: one for one in self.overheads if one.links == links}
        captured, started, rounds = False, time.monotonic(), 0
        while True:
            nan = self.turns % 2 == 0
            if links > 1:
                chains = [verifier.chain(run.contestant, slots[:links], nan, doorbells)]
            else:
                chains = verifier.single_link_chains(run.contestant, slots[:SINGLE_LINK_SLOTS], nan, doorbells)
            for chained in chains:
                if not chained.verdict.passed:
                    raise _Wrong(chained.verdict, chained.seed)
                captured = chained.captured
                overhead = known.get(chained.doorbells, overhead)
                trusted.append(overhead.trusted(chained.unseal, chained.wall))
                unsealing.append(chained.unseal)
                if not on_device:
                    self._possible(chained.claim * links, chained.wall)
                    said.append(chained.claim)
                    paired.append(timing.settle(chained.claim, max(trusted[-1], overhead.resolution)))
            rounds += 1
            self._turn()
            if rounds == 1 and self._warms_up(time.monotonic() - started):
                for counted in (trusted, paired, said, unsealing):
                    counted.clear()
                started = time.monotonic()
                continue
            if on_device:        # more chains could only lower the bound
                bound = self._bound(trusted, overhead)
                done = rounds >= CHAIN_ROUNDS or timing.settle(claim, bound) == claim
            else:
                done = timing.finished(paired, time.monotonic() - started, self.options)
            if done:
                break
        bound = self._bound(trusted, overhead)
        facts: dict[str, Any] = {
            "chain": {
                "links": links, "chains": len(trusted), "bound": bound, "overhead": overhead.wall / links,
                "resolution": overhead.resolution, "captured": captured, "doorbells": chained.doorbells,
                "unseal": quantile(unsealing, 0.5), "unseal_alone": overhead.unseal,
            },
        }
        if not on_device:
            stands = paired == said
            return paired, facts | {
                "clock": "claim within the judge's bound" if stands else "judge", "claim": statistics.median(said)}
        if timing.settle(claim, bound) == claim:
            return claims, facts | {"clock": "claim within the judge's bound", "claim": claim}
        # All of them: whoever claims too little is not paid by the least of eight chains as well.
        return [max(seconds, bound) for seconds in trusted], facts | {"clock": "judge", "claim": claim}

    @staticmethod
    def _bound(trusted: Sequence[float], overhead: Overhead) -> float:
        """Seconds per call that nobody can talk down, as far as the clock resolves."""
        share = BOUND_SHARE if overhead.links > 1 else SINGLE_LINK_SHARE
        return max(quantile(trusted, share), overhead.resolution)

    def _overhead(self, on_device: bool) -> Overhead:
        """That of the longest chain to run: on a host of no more links than there are slots."""
        fitting = [one for one in self.overheads if on_device or one.links <= len(self.run.slots)]
        return fitting[0] if fitting else self.overheads[-1]

    # ---- how ------------------------------------------------------------------------------------------------------

    def _warms_up(self, elapsed: float) -> bool:
        """Whether the first round, which took ``elapsed`` seconds, does not count."""
        return not self.run.torch_device.startswith("cuda") and elapsed < self.options.seconds

    def _turn(self) -> None:
        self.readings.append(self.sample_environment())
        self.turns += 1

    def _protocol(self) -> tuple[type[Replay | Sweep], str]:
        """(request, protocol): a captured graph; plain launches if those are asked for or a capture is refused."""
        if not self.run.torch_device.startswith("cuda"):
            return Sweep, timing.WALL
        if self.options.protocol == timing.EVENT:
            return Sweep, timing.EVENT
        try:
            self.run.ask(Capture(self.run.contestant.name, self.names))
            return Replay, timing.GRAPH
        except WorkerFailure as failure:
            if not failure.alive:
                raise
            return Sweep, timing.EVENT

    def _prepare(self, other: Contestant, request: type[Replay | Sweep], check: bool = False) -> Verdict:
        """Load and call another contestant, capture it if that is how it is timed; the verdict of a check."""
        self.run.ask(Load(other.name, other.spec))
        verdict = Verdict(Status.PASSED)
        if check:
            verdict = self.run.call_once(self.run.slots[0], other, self.run.call_seconds)
        else:
            self.run.ask(Call(other.name, self.names[0]))
        if verdict.passed and request is Replay:
            self.run.ask(Capture(other.name, self.names))
        return verdict
