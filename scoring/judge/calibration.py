# SPDX-License-Identifier: MIT
"""What a chain costs by itself: unsealing, mixing, committing, and two round trips, without any code under test.

Measured with a contestant of ours, whose time is known, in a worker of its own, before a submission is started: a
process that is not there cannot slow the machine down to have more subtracted later. Chains are as long as they will be
in earnest: the slope of a line through two other lengths multiplies its error by the links (benchmarks/judge.md).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from scoring.ipc.arena import ArenaError
from scoring.ipc.chain_library import KEY_BYTES, ChainLibrary
from scoring.ipc.requests import Capture, LoadNullKernel, Replay
from scoring.ipc.template import UnsupportedData
from scoring.judge import seeds, timing
from scoring.judge.case_run import CaseRun, Slot, claimed
from scoring.judge.chain_verifier import SINGLE_LINK_SLOTS, ChainVerifier
from scoring.judge.job import Job
from scoring.judge.worker_process import WorkerFailure, WorkerProcess
from scoring.problem import ProblemError
from scoring.record import Case, Status

SAMPLES = 12                  # chains
DOORBELL_SAMPLES = 6          # … that wait at doorbells, and as many without: they differ by less
STALE = {"cpu": 120.0, "cuda": 600.0}        # seconds a result may be used again: a host's speed drifts
# Which quantile of the links' time is subtracted. Too much is a gift to whoever claims almost nothing: on a host, where
# other processes may slow most of a calibration, the fastest tenth; on a GPU, which is the judge's alone, the median,
# which agrees best with direct times. Of unsealing only the excess over its quantile counts.
LINKS_SHARE = {"cpu": 0.1, "cuda": 0.5}
UNSEAL_SHARE = 0.75
# Unsealing for a chain of several links may take this much longer than in calibration: the device's jitter. Whoever
# uses it to work ahead on an operand has it once for the whole chain.
JITTER = 200e-6, 0.05         # seconds, and a share of the phase
DOORBELL_JITTER = 20e-6, 0.03    # … where no host is in between: 13 µs more of 240 to 1500 µs were seen


@dataclass(frozen=True)
class Overhead:
    """Seconds that the two phases of a chain of ``links`` links cost without calls, and how well that is known.

    A chain of one link has one phase: all its inputs are known when they are unsealed, so the clock runs from there,
    and ``unseal`` is 0. Of unsealing only two things are subtracted: the least time that moving the bytes takes and, at
    doorbells, the launch (part of ``wall``). A contestant that unseals faster than we do must not gain from it.

    ``doorbells``: these chains wait on the device for their keys, so that neither phase holds anything of a host.

    ``spread`` is how far the median of such chains lies above their fastest tenth, in seconds: the judge's clock
    resolves no less. ``wall`` is their median on a GPU, the fastest tenth on a host.
    """

    links: int
    unseal: float
    wall: float
    spread: float
    doorbells: bool = False

    @property
    def resolution(self) -> float:
        """Seconds per call below which the judge's clock says nothing."""
        return self.spread / self.links

    def trusted(self, unseal: float, wall: float) -> float:
        """Seconds per call of a chain whose phases took ``unseal`` and ``wall``.

        Time beyond what unsealing takes counts as work done there; time saved there buys nothing.
        """
        seconds, share = DOORBELL_JITTER if self.doorbells else JITTER
        allowed = seconds + (1 + share) * self.unseal if self.links > 1 else 0.0
        return (wall - self.wall + max(0.0, unseal - allowed)) / self.links


def quantile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of the values do not exceed; no interpolation. Raises ``ValueError`` for none."""
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(
    prepare: Callable[[], object], phases: Callable[[bytes, bytes], tuple[float, float]], links: int, device: str,
    samples: int = SAMPLES, doorbells: bool = False,
) -> Overhead:
    """Calibrate a chain of ``links`` links on a ``device`` such as ``cuda:0``; the first two chains are not counted.

    ``prepare`` makes the chain ready. ``phases`` runs it and returns the seconds of both phases, less those in calls.
    """
    told = []
    for _chain in range(samples + 2):
        prepare()
        told.append(phases(os.urandom(KEY_BYTES), os.urandom(KEY_BYTES)))
    unsealing, linking = zip(*told[2:], strict=True)
    return Overhead(
        links, quantile(unsealing, UNSEAL_SHARE) if links > 1 else 0.0, quantile(linking, LINKS_SHARE[_kind(device)]),
        quantile(linking, 0.5) - quantile(linking, 0.1), doorbells)


def _kind(device: str) -> str:
    """``cuda`` of ``cuda:0``."""
    return device.partition(":")[0]


class Known:
    """Overheads measured in this process, by whatever tells one kind of chain from another."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[float, tuple[Overhead, ...]]] = {}

    def get(self, key: tuple[object, ...], device: str) -> tuple[Overhead, ...]:
        """Those measured lately on a device such as ``cuda:0``; none if there are none."""
        when, overheads = self._known.get(key, (float("-inf"), ()))
        return overheads if time.monotonic() - when < STALE[_kind(device)] else ()

    def put(self, key: tuple[object, ...], overheads: tuple[Overhead, ...]) -> None:
        self._known[key] = (time.monotonic(), overheads)


KNOWN = Known()


def calibrate(
    job: Job, library: ChainLibrary, cases: Mapping[str, Case], start_worker: Callable[[], WorkerProcess],
    progress: Callable[[str], None], process: int = 0,
) -> dict[str, tuple[Overhead, ...]]:
    """What a chain over each of the ``cases`` costs by itself, by their keys, told by a worker that knows no code under
    test.

    A case whose chain cannot be measured (no memory, a broken problem) is left out; running it will say why.
    ``process``: what is known of other processes than that one is not used.
    """
    assert job.contestant is not None
    copies = not job.contestant.parameters       # a submission returns memory of its own
    measured: dict[str, tuple[Overhead, ...]] = {}
    wanted = []
    for label, case in cases.items():
        key = (job.problem.path, case.name, job.torch_device, copies, process)
        known = KNOWN.get(key, job.torch_device)
        if known:
            measured[label] = known
        else:
            wanted.append((label, case, key))
    if not wanted:
        return measured
    progress(f"{job.kernel} on {job.target.gpu}: calibrating the judge's clock")
    with start_worker() as worker:
        for label, case, key in wanted:
            flops = job.work(case)[0] / 2      # about as many of bf16 as take the time of those of fp8
            worker.request(LoadNullKernel(job.contestant.name, copies, flops), job.limits.load_seconds)
            try:
                with CaseRun.of(job, case, worker, seeds.SeedSource(seeds.draw())) as run:
                    overheads = _overheads(job, library, case, run)
            except (ArenaError, UnsupportedData, ProblemError, WorkerFailure):
                if not worker.alive:
                    break
                continue
            measured[label] = overheads
            KNOWN.put(key, overheads)
    return measured


def _overheads(job: Job, library: ChainLibrary, case: Case, run: CaseRun) -> tuple[Overhead, ...]:
    """Those of chains of every length the case may be timed with, longest first, each with and without doorbells."""
    run.add_slot()
    verifier, name = ChainVerifier(run, library), run.contestant.name
    lengths: tuple[int, ...] = (1,)
    if verifier.chains:
        floor, _bound = job.roofline(case)
        lengths = timing.chain_lengths(run.bytes_per_slot, floor, job.slot_memory, job.torch_device == "cpu")
    ways = (True, False) if verifier.open_doorbells() else (False,)
    apart = max(1, min(SINGLE_LINK_SLOTS, job.slot_memory // run.bytes_per_slot)) if verifier.doorbells else 1
    while len(run.slots) < (apart if lengths == (1,) else lengths[0]):
        run.add_blank_slot()

    def prepare(slots: Sequence[Slot], doorbells: bool) -> None:
        for slot in slots:           # the device is ours before it is the worker's, as in a real chain
            slot.memory.refill()
            slot.memory.poison(nan=True)
        run.sync()
        if not verifier.prepare(name, slots, doorbells, unsealed=doorbells and lengths == (1,)) and doorbells:
            raise WorkerFailure(Status.RUNTIME_ERROR, "the judge's own chain cannot be captured", alive=True)

    def measured(links: int, doorbells: bool) -> Overhead:
        slots = run.slots[: apart if doorbells and links == 1 else links]
        known = _known_seconds(job, run, len(slots))

        def phases(seal: bytes, begin: bytes) -> tuple[float, float]:
            if doorbells and links == 1:
                walls = [answer.wall for answer in verifier.one_by_one([begin] * len(slots))]
                return 0.0, quantile(walls, 0.5) - (known or 0.0) / len(slots)
            answer = (
                verifier.by_doorbell(seal, begin, links) if doorbells
                else verifier.by_messages(seal, begin, links, together=False))
            return answer.unseal, answer.wall - (answer.claim if known is None else known)

        samples = DOORBELL_SAMPLES if verifier.doorbells else SAMPLES
        overhead = measure(partial(prepare, slots, doorbells), phases, links, job.torch_device, samples, doorbells)
        bandwidth = job.target.peaks.get("bytes")
        if links > 1 or not bandwidth:
            return overhead
        return replace(overhead, wall=overhead.wall + 2 * run.slots[0].memory.sealed.numel() / bandwidth)

    return tuple(measured(links, doorbells) for links in lengths for doorbells in ways)


def _known_seconds(job: Job, run: CaseRun, links: int) -> float | None:
    """What the calls of a calibration chain take on a GPU, replayed alone; None for a host, whose clock tells."""
    if job.torch_device == "cpu":
        return None
    name, slots = run.contestant.name, tuple(slot.name for slot in run.slots[:links])
    run.ask(Capture(name, slots))
    return min(claimed(run.ask(Replay(name, slots))) for _replay in range(8))
