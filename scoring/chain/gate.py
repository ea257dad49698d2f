# SPDX-License-Identifier: MIT
"""The judge's side of a commit chain: seal the inputs, hold the clock, and verify every link from the bytes.

What the worker says is its last digest. Everything else the judge has itself: it knows when it revealed the secret and
when the answer came, computes all digests again from private copies of the outputs, draws the inputs of every link
again, and checks every output against its own reference. docs/judge.md has the protocol and what it rests on.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from scoring.caserun import CaseRun, Slot, claimed
from scoring.chain.doors import INPUTS, LINKS, NBYTES, Doors
from scoring.chain.library import KEY_BYTES, ChainLibrary
from scoring.check import Verdict
from scoring.model import Status
from scoring.session import WorkerFailure

if TYPE_CHECKING:
    from scoring.caserun import Contestant


UNCOMMITTED = (
    "the outputs are not those the worker had committed itself to when the clock stopped: something wrote to them "
    "later (a thread, a stream or a process that was not waited for), or the digest was made up")


@dataclass(frozen=True)
class Chained:
    """One chain: the verdict over all its links, the seed of the first wrong one, and seconds by the judge's clock:
    ``unseal`` until the worker had the inputs (so it said), ``wall`` for the links.

    ``claim`` is what the worker says it spent in calls, per call (NaN if it cannot tell); ``doors`` whether the chain
    waited at the doors, so that the two hold nothing of the worker's host.
    """

    verdict: Verdict
    seed: int
    links: int
    unseal: float
    wall: float
    claim: float
    captured: bool
    doors: bool = False


@dataclass(frozen=True)
class Answer:
    """What the judge's clock and the worker say of the two phases of a chain."""

    unseal: float
    wall: float
    digest: Any
    claim: float              # seconds in all calls


class Gate:
    """Chains of one contestant over slots of one case. Use ``open_doors`` before chains that may wait at doors."""

    def __init__(self, run: CaseRun, library: ChainLibrary):
        self.run = run
        self.library = library
        self.doors: Doors | None = None

    @property
    def chains(self) -> bool:
        """Whether links can depend on one another; else a chain has one link."""
        return bool(self.run.slots[0].memory.layout.fresh)

    def open_doors(self) -> bool:
        """Whether this case's worker has a device that sees host memory of ours. Raises ``WorkerFailure``."""
        if self.doors is None and self.run.torch_device.startswith("cuda"):
            block = self.run.share_host(NBYTES)
            try:
                self.run.share("doors", block)
                self.doors = Doors(block)
            except WorkerFailure as failure:
                if not failure.alive:
                    raise
        return self.doors is not None

    def arm(self, contestant: str, slots: Sequence[Slot], doors: bool = False, opened: bool = False) -> bool:
        """Have the worker ready for a chain, with ``doors`` for one that waits at them, with ``opened`` for one whose
        inputs nobody has sealed; whether it is captured in a graph. Raises ``WorkerFailure``."""
        fresh = slots[0].memory.layout.fresh if len(slots) > 1 else ()
        reply = self.run.ask(
            "arm", contestant=contestant, slots=[slot.name for slot in slots], fresh=list(fresh), doors=doors,
            opened=opened)
        return reply.get("captured") is True

    def asked(self, seal: bytes, begin: bytes, links: int, together: bool) -> Answer:
        """Both phases of the armed chain by messages to the worker: reveal the key of the inputs and, once it says that
        it has them, where the links begin; ``together`` with one clock for both. Raises ``WorkerFailure``."""
        request, seconds, unseal = self.run.worker.request, self.run.call_seconds, 0.0
        keys = {"secret": begin.hex()}
        if together:
            keys["seal"] = seal.hex()
        else:
            start = time.perf_counter()
            request("unseal", seconds, secret=seal.hex())
            unseal = time.perf_counter() - start
        start = time.perf_counter()
        reply = request("go", (1 + links) * seconds, (), **keys)
        return Answer(unseal, time.perf_counter() - start, reply.get("digest"), claimed(reply))

    def stood(self, seal: bytes, begin: bytes, links: int) -> Answer:
        """Both phases of the armed chain, which waits at the doors, as ``asked``. Raises ``WorkerFailure``."""
        with self._standing(links) as gone:
            doors = self._open_doors()
            doors.wait_listening(INPUTS, gone)
            start = time.perf_counter()
            doors.ring(INPUTS, seal)
            doors.wait_answered(INPUTS, gone)
            now = time.perf_counter()
            unseal, start = now - start, now
            doors.ring(LINKS, begin)
            digest = doors.wait_answered(LINKS, gone)      # ours from here on, so the clock may stop
            wall = time.perf_counter() - start
        return Answer(unseal, wall, digest.hex() if digest is not None else None, float("nan"))

    def stood_apart(self, keys: Sequence[bytes]) -> list[Answer]:
        """The links of the armed chain, each of which waits at a door of its own for its key: they cannot depend on one
        another, but nobody knows the inputs of one before the digest of the one before is ours. Raises
        ``WorkerFailure``."""
        answers = []
        with self._standing(len(keys)) as gone:
            doors = self._open_doors()
            for door, key in enumerate(keys):
                doors.wait_listening(door, gone)
                start = time.perf_counter()
                doors.ring(door, key)
                digest = doors.wait_answered(door, gone)
                wall = time.perf_counter() - start
                answers.append(Answer(0.0, wall, digest.hex() if digest is not None else None, float("nan")))
        return answers

    def _open_doors(self) -> Doors:
        assert self.doors is not None
        return self.doors

    @contextlib.contextmanager
    def _standing(self, links: int) -> Iterator[Callable[[], bool]]:
        """The armed chain started: within, it waits at the doors. Gives what tells whether it is over."""
        worker = self.run.worker
        self._open_doors().close_all()
        asked = worker.ask("stand", (1 + links) * self.run.call_seconds)
        try:
            yield lambda: worker.answered() or time.monotonic() > asked.until
        except BaseException:         # interrupted: the device would wait at a door that nobody rings
            worker.close()
            raise
        worker.answer(asked)

    def chain(self, contestant: Contestant, slots: Sequence[Slot], nan: bool, doors: bool = False) -> Chained:
        """One chain with fresh inputs in all ``slots``, verified link by link; with ``doors`` it waits at them if it
        can. Raises ``WorkerFailure``."""
        run, links = self.run, len(slots)
        seal, begin = os.urandom(KEY_BYTES), os.urandom(KEY_BYTES)
        seal_key = self.library.key(seal)
        for index, slot in enumerate(slots):
            run.refresh(slot, partial(self._seal, seal_key, index))
            slot.memory.poison(nan)
        run.sync()
        doors = doors and links > 1 and self.open_doors()
        captured = self.arm(contestant.name, slots, doors)
        doors = doors and captured
        # With one link nothing of the inputs depends on the second key: no clock may stand still before it.
        answer = self.stood(seal, begin, links) if doors else self.asked(seal, begin, links, together=links == 1)
        verdict, seed = self._verify(contestant, slots, self.library.key(begin), answer.digest)
        return Chained(verdict, seed, links, answer.unseal, answer.wall, answer.claim / links, captured, doors)

    def apart(self, contestant: Contestant, slots: Sequence[Slot], nan: bool, doors: bool = False) -> list[Chained]:
        """Chains of one link each over ``slots``; with ``doors`` one after another in one graph that waits at them, if
        it can. Raises ``WorkerFailure``."""
        if not (doors and self.open_doors()):
            return [self.chain(contestant, [slot], nan) for slot in slots]
        keys = [os.urandom(KEY_BYTES) for _slot in slots]
        for slot, key in zip(slots, keys, strict=True):
            self.run.refresh(slot, partial(self._seal, self.library.key(key), 0))
            slot.memory.poison(nan)
        self.run.sync()
        if not self.arm(contestant.name, slots, doors):
            return [self.chain(contestant, [slot], nan) for slot in slots]
        found = []
        for slot, key, answer in zip(slots, keys, self.stood_apart(keys), strict=True):
            verdict, seed = self._verify(contestant, [slot], self.library.key(key), answer.digest)
            found.append(Chained(verdict, seed, 1, 0.0, answer.wall, answer.claim, True, True))
            if not verdict.passed:
                break
        return found

    def _seal(self, key: torch.Tensor, nonce: int, region: torch.Tensor) -> None:
        self.library.seal(region, key, nonce)

    def _verify(
        self, contestant: Contestant, slots: Sequence[Slot], key: torch.Tensor, digest: Any
    ) -> tuple[Verdict, int]:
        """The first link that is wrong, or that the worker's digest is not that of the bytes it gave."""
        outputs = [slot.memory.outputs() for slot in slots]       # before anything else: now they are ours
        self.run.sync()
        keys = [key]
        for given in outputs:
            kept = keys[-1].clone()
            for number, output in enumerate(given):
                nbytes = output.numel() * output.element_size()
                self.library.commit(output.data_ptr(), output.data_ptr(), nbytes, kept, kept, number)
            keys.append(kept)
        committed = digest == bytes(keys[-1].tolist()).hex()
        for slot, given, begin in zip(slots, outputs, keys, strict=False):
            if len(slots) > 1:
                for number, name in enumerate(slot.memory.layout.fresh):
                    self.library.mix(slot.memory.private[name], begin, number)
            verdict = self.run.verify_slot(slot, contestant, given)
            if not verdict.passed:
                return verdict, slot.seed
            if not committed:     # the inputs of all other links are drawn from digests that are not the worker's
                return Verdict(Status.TAMPERED, UNCOMMITTED), slot.seed
        return verdict, 0
