# SPDX-License-Identifier: MIT
"""Timed rounds: what a contestant claims, what the judge's clock allows, and the time that follows from the two.

On a GPU a worker's events tell the time of a graph replay to a fraction of a microsecond, but they are a claim. Chains
(``gate``) give a time that is not: an upper bound nobody can talk down. A claim stands where that bound does
not contradict it; else the bound is the time. Without a GPU the chains are all there is, with the worker's claim about
the calls in them. Peers are trusted code, and their claims are taken as they are.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scoring import timing
from scoring.caserun import CaseRun, Contestant, claimed
from scoring.chain.calibration import Overhead, quantile
from scoring.chain.gate import Gate
from scoring.check import Verdict
from scoring.model import Stats, Status
from scoring.session import WorkerFailure

CHAIN_ROUNDS = 8              # at most, on a GPU: chains are run until one of them agrees with what the events say
BOUND_SHARE = 0.0             # the quantile of the chains' times that bounds a claim: the least, as jitter only adds
GATED_SHARE = 0.25            # … of chains of one link, where a single outlier would bound too little
GATED_SLOTS = 8               # chains of one link per round, where links cannot depend on one another; as many doors
# Without a chain: seconds a request may take besides the claimed interval (round trip, wake-up, launch, and the GPU
# changing from the judge's context to the worker's: 0.5 to 1 ms on an H200).
CALL_SLACK = 2e-3
COPY_BANDWIDTH = 2e9          # bytes/s, a lower bound of how fast a submission's outputs are put in place


@dataclass(frozen=True)
class Timed:
    """Outcome of timing: statistics per contestant that stayed correct, and the circumstances."""

    verdict: Verdict
    seed: int
    stats: Mapping[str, Stats] = field(default_factory=dict)
    protocol: str = ""
    environment: Mapping[str, Any] = field(default_factory=dict)


class _Wrong(Exception):
    """The contestant itself gave a wrong answer, or claimed an impossible time."""

    def __init__(self, verdict: Verdict, seed: int):
        super().__init__(verdict.message)
        self.verdict = verdict
        self.seed = seed


class Rounds:
    """All timing of one case. ``gate`` is None where the chain's library could not be built."""

    def __init__(
        self, run: CaseRun, peers: Sequence[Contestant], slots: int, options: timing.TimingOptions,
        sample_environment: Callable[[], Mapping[str, Any]], gate: Gate | None = None,
        overheads: Sequence[Overhead] = (),
    ):
        while len(run.slots) < slots:
            run.add_slot()
        self.run = run
        self.peers = peers
        self.options = options
        self.sample_environment = sample_environment
        self.gate = gate
        self.overheads = overheads         # longest chain first
        self.names = [slot.name for slot in run.slots]
        self.notes: dict[str, str] = {}
        self.readings: list[Mapping[str, Any]] = []
        self.turns = 0

    def time(self) -> Timed:
        """Rounds until the time is known well enough; every output of every round is verified.

        Raises ``WorkerFailure`` for the contestant itself; a peer that fails is left out and named in the environment.
        """
        run, own = self.run, self.run.contestant.name
        request, protocol = self._protocol()
        on_device = run.torch_device.startswith("cuda")
        facts: dict[str, Any] = {"slots": len(self.names), "request": request}
        try:
            samples: dict[str, list[float]] = {}
            if on_device or self.peers or self.gate is None:
                samples = self._claims(request)
            if self.gate is not None:
                samples[own], judged = self._chained(self.gate, samples.get(own, []), request)
                facts |= judged
            else:
                facts["clock"] = "claim, bounded by requests only"
        except _Wrong as wrong:
            return Timed(wrong.verdict, wrong.seed)
        stats = {name: timing.statistics(values) for name, values in samples.items() if values}
        facts |= {"rounds": self.turns, **summary(self.readings), **({"peer_notes": self.notes} if self.notes else {})}
        return Timed(Verdict(Status.PASSED), run.seed, stats, protocol, facts)

    # ---- claims -----------------------------------------------------------------------------------------------------

    def _claims(self, request: str) -> dict[str, list[float]]:
        """Seconds per call as the worker tells them, contestants taking turns; all of them if there is no gate."""
        run, own = self.run, self.run.contestant.name
        runners = {own: run.contestant}
        for peer in self.peers:
            try:
                self._prepare_peer(peer, request)
                runners[peer.name] = peer
            except WorkerFailure as failure:
                if not failure.alive:
                    raise
                self.notes[peer.name] = str(failure).splitlines()[-1]
        samples: dict[str, list[float]] = {name: [] for name in runners}
        started = time.monotonic()
        while True:
            changed = [run.refresh(slot) for slot in run.slots]
            order = list(runners)
            if request == "replay" and any(changed):      # a graph repeats the plain values it was captured with
                for name in order:
                    run.ask("capture", contestant=name, slots=self.names)
            for name in order[self.turns % len(order) :] + order[: self.turns % len(order)]:
                try:
                    samples[name].append(self._claim(runners[name], request, again=len(runners) > 1))
                except _Wrong as wrong:
                    if name == own:
                        raise
                    self.notes[name] = wrong.verdict.message
                    del runners[name], samples[name]
            self._turn()
            if timing.finished(samples[own], time.monotonic() - started, self.options):
                return samples

    def _claim(self, contestant: Contestant, request: str, again: bool) -> float:
        """One request over all slots, verified: claimed seconds per call; ``again`` if others have the same inputs.
        Raises ``_Wrong``."""
        run = self.run
        for slot in run.slots:
            slot.memory.poison(nan=self.turns % 2 == 0)
        run.sync()
        begin = time.perf_counter()
        reply = run.worker.request(
            request, (1 + len(self.names)) * run.call_seconds, contestant=contestant.name, slots=self.names)
        wall = time.perf_counter() - begin
        claim = claimed(reply)
        for slot in run.slots:
            verdict = run.verify_slot(slot, contestant, again=again)
            if not verdict.passed:
                raise _Wrong(verdict, slot.seed)
        self._possible(claim, wall)
        if self.gate is None:
            outputs = sum(spec.nbytes for spec in run.slots[0].memory.layout.outputs) * len(run.slots)
            slack = CALL_SLACK + (0.0 if contestant.parameters else outputs / COPY_BANDWIDTH)
            claim = timing.bounded(claim, wall, slack)
        return claim / len(self.names)

    def _possible(self, claim: float, wall: float) -> None:
        if not timing.possible(claim, wall):
            message = f"claimed {claim * 1e6:.6g} µs for an interval inside {wall * 1e6:.6g} µs of the judge's clock"
            raise _Wrong(Verdict(Status.TIMING_MISMATCH, message), self.run.slots[0].seed)

    # ---- the judge's clock ------------------------------------------------------------------------------------------

    def _chained(
        self, gate: Gate, claims: list[float], request: str
    ) -> tuple[list[float], dict[str, Any]]:
        """Seconds per call that count, and the facts behind them; ``request`` is what made the claims. Raises
        ``_Wrong``."""
        run, on_device = self.run, self.run.torch_device.startswith("cuda")
        overhead = self._overhead(on_device)
        links, slots, doors = overhead.links, run.slots, overhead.doors
        while len(slots) < links:
            run.add_slot()
        claim = quantile(claims, 0.5) if on_device else math.nan
        trusted: list[float] = []
        paired: list[float] = []
        said: list[float] = []
        unsealing: list[float] = []
        # What could be captured for the claims can be for the chain: messages instead of doors then buy nothing.
        known = {doors: overhead} if request == "replay" else {
            one.doors: one for one in self.overheads if one.links == links}
        captured, started, rounds = False, time.monotonic(), 0
        while True:
            nan = self.turns % 2 == 0
            if links > 1:
                chains = [gate.chain(run.contestant, slots[:links], nan, doors)]
            else:
                chains = gate.apart(run.contestant, slots[:GATED_SLOTS], nan, doors)
            for chained in chains:
                if not chained.verdict.passed:
                    raise _Wrong(chained.verdict, chained.seed)
                captured = chained.captured
                overhead = known.get(chained.doors, overhead)
                trusted.append(overhead.trusted(chained.unseal, chained.wall))
                unsealing.append(chained.unseal)
                if not on_device:
                    self._possible(chained.claim * links, chained.wall)
                    said.append(chained.claim)
                    paired.append(timing.settle(chained.claim, max(trusted[-1], overhead.resolution)))
            rounds += 1
            self._turn()
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
                "resolution": overhead.resolution, "captured": captured, "doors": chained.doors,
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
        share = BOUND_SHARE if overhead.links > 1 else GATED_SHARE
        return max(quantile(trusted, share), overhead.resolution)

    def _overhead(self, on_device: bool) -> Overhead:
        """That of the longest chain to run: on a host of no more links than there are slots."""
        fitting = [one for one in self.overheads if on_device or one.links <= len(self.run.slots)]
        return fitting[0] if fitting else self.overheads[-1]

    # ---- how ------------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        self.readings.append(self.sample_environment())
        self.turns += 1

    def _protocol(self) -> tuple[str, str]:
        """(request, protocol): a captured graph; plain launches if those are asked for or a capture is refused."""
        if not self.run.torch_device.startswith("cuda"):
            return "sweep", timing.WALL
        if self.options.protocol == timing.EVENT:
            return "sweep", timing.EVENT
        try:
            self.run.ask("capture", contestant=self.run.contestant.name, slots=self.names)
            return "replay", timing.GRAPH
        except WorkerFailure as failure:
            if not failure.alive:
                raise
            return "sweep", timing.EVENT

    def _prepare_peer(self, peer: Contestant, request: str) -> None:
        self.run.ask("load", contestant=peer.name, **peer.load)
        self.run.ask("call", contestant=peer.name, slot="slot0")
        if request == "replay":
            self.run.ask("capture", contestant=peer.name, slots=self.names)


def summary(readings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Range of every numeric reading, union of every list; the circumstances of a measurement in a few figures."""
    found: dict[str, Any] = {}
    for key in {key for reading in readings for key in reading}:
        values = [reading[key] for reading in readings if key in reading]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            ordered = sorted(values)
            found[key] = {"min": ordered[0], "median": ordered[len(ordered) // 2], "max": ordered[-1]}
        elif all(isinstance(value, list | tuple) for value in values):
            found[key] = sorted({item for value in values for item in value})
        else:
            found[key] = values[-1]
    return found
