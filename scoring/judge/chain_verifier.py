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

from scoring.ipc import requests
from scoring.ipc.chain_library import KEY_BYTES, ChainLibrary
from scoring.judge.case_run import CaseRun, Slot, claimed
from scoring.judge.check import Verdict
from scoring.judge.doorbell import INPUTS, LINKS, NBYTES, Doorbells
from scoring.judge.worker_process import WorkerFailure
from scoring.record import Status

if TYPE_CHECKING:
    from scoring.judge.job import Contestant

SINGLE_LINK_SLOTS = 8         # chains of one link per round, and doorbells, where links cannot depend on one another

UNCOMMITTED = (
    "the outputs are not those the worker had committed itself to when the clock stopped: something wrote to them "
    "later (a thread, a stream or a process that was not waited for), or the digest was made up")


@dataclass(frozen=True)
class ChainResult:
    """One chain: the verdict over all its links, the seed of the first wrong one, and seconds by the judge's clock:
    ``unseal`` until the worker had the inputs (so it said), ``wall`` for the links.

    ``claim`` is what the worker says it spent in calls, per call (NaN if it cannot tell). ``doorbells``: the chain
    waited at them, so ``unseal`` and ``wall`` hold nothing of the worker's host.
    """

    verdict: Verdict
    seed: int
    links: int
    unseal: float
    wall: float
    claim: float
    captured: bool
    doorbells: bool = False


@dataclass(frozen=True)
class Answer:
    """What the judge's clock and the worker say of the two phases of a chain."""

    unseal: float
    wall: float
    digest: Any
    claim: float              # seconds in all calls


class ChainVerifier:
    """Runs and verifies chains of one contestant over slots of one case.

    Call ``open_doorbells`` before chains that may wait at doorbells.
    """

    def __init__(self, run: CaseRun, library: ChainLibrary):
        self.run = run
        self.library = library
        self.doorbells: Doorbells | None = None

    @property
    def chains(self) -> bool:
        """Whether links can depend on one another; else a chain has one link."""
        return bool(self.run.slots[0].memory.layout.fresh)

    def open_doorbells(self) -> bool:
        """Whether this case's worker has a device that sees host memory of ours. Raises ``WorkerFailure``."""
        if self.doorbells is None and self.run.torch_device.startswith("cuda"):
            block = self.run.share_host(NBYTES)
            try:
                self.run.share(block, requests.ShareDoorbells)
                self.doorbells = Doorbells(block)
            except WorkerFailure as failure:
                if not failure.alive:
                    raise
        return self.doorbells is not None

    def prepare(self, contestant: str, slots: Sequence[Slot], doorbells: bool = False, unsealed: bool = False) -> bool:
        """Have the worker ready for a chain over ``slots``; True if it is captured in a graph.

        ``doorbells``: it waits at them. ``unsealed``: nobody has sealed its inputs. Raises ``WorkerFailure``.
        """
        fresh = slots[0].memory.layout.fresh if len(slots) > 1 else ()
        names = tuple(slot.name for slot in slots)
        reply = self.run.ask(requests.PrepareChain(contestant, names, fresh, doorbells, unsealed))
        return reply.get("captured") is True

    def by_messages(self, seal: bytes, begin: bytes, links: int, together: bool) -> Answer:
        """Both phases of the prepared chain by messages: reveal the key of the inputs, then where the links begin.

        ``together``: one message and one clock for both. Raises ``WorkerFailure``.
        """
        worker, seconds, unseal = self.run.worker, self.run.call_seconds, 0.0
        if not together:
            start = time.perf_counter()
            worker.request(requests.UnsealChain(seal.hex()), seconds)
            unseal = time.perf_counter() - start
        run_chain = requests.RunChain(begin.hex(), seal.hex() if together else None)
        start = time.perf_counter()
        reply = worker.request(run_chain, (1 + links) * seconds)
        return Answer(unseal, time.perf_counter() - start, reply.get("digest"), claimed(reply))

    def by_doorbell(self, seal: bytes, begin: bytes, links: int) -> Answer:
        """Both phases of the prepared chain, which waits at its doorbells for the keys. Raises ``WorkerFailure``."""
        with self._launched(links) as gone:
            doorbells = self._open_doorbells()
            doorbells.wait_listening(INPUTS, gone)
            start = time.perf_counter()
            doorbells.ring(INPUTS, seal)
            doorbells.wait_answered(INPUTS, gone)
            now = time.perf_counter()
            unseal, start = now - start, now
            doorbells.ring(LINKS, begin)
            digest = doorbells.wait_answered(LINKS, gone)      # ours from here on, so the clock may stop
            wall = time.perf_counter() - start
        return Answer(unseal, wall, digest.hex() if digest is not None else None, float("nan"))

    def one_by_one(self, keys: Sequence[bytes]) -> list[Answer]:
        """The links of the prepared chain, where each waits at a doorbell of its own for its own key.

        Links cannot depend on one another here. Instead the judge rings for a link only when it has the digest of the
        link before. Raises ``WorkerFailure``.
        """
        answers = []
        with self._launched(len(keys)) as gone:
            doorbells = self._open_doorbells()
            for doorbell, key in enumerate(keys):
                doorbells.wait_listening(doorbell, gone)
                start = time.perf_counter()
                doorbells.ring(doorbell, key)
                digest = doorbells.wait_answered(doorbell, gone)
                wall = time.perf_counter() - start
                answers.append(Answer(0.0, wall, digest.hex() if digest is not None else None, float("nan")))
        return answers

    def _open_doorbells(self) -> Doorbells:
        assert self.doorbells is not None
        return self.doorbells

    @contextlib.contextmanager
    def _launched(self, links: int) -> Iterator[Callable[[], bool]]:
        """The prepared chain started: within, it waits at the doorbells. Gives what tells whether it is over."""
        worker = self.run.worker
        self._open_doorbells().close_all()
        asked = worker.ask(requests.LaunchChain(), (1 + links) * self.run.call_seconds)
        try:
            yield lambda: worker.answered() or time.monotonic() > asked.until
        except BaseException:         # interrupted: the device would wait at a doorbell that nobody rings
            worker.close()
            raise
        worker.answer(asked)

    def chain(self, contestant: Contestant, slots: Sequence[Slot], nan: bool, doorbells: bool = False) -> ChainResult:
        """One chain with fresh inputs in all ``slots``, verified link by link. Raises ``WorkerFailure``.

        ``doorbells``: it waits at them if it can.
        """
        run, links = self.run, len(slots)
        seal, begin = os.urandom(KEY_BYTES), os.urandom(KEY_BYTES)
        seal_key = self.library.key(seal)
        for index, slot in enumerate(slots):
            run.refresh(slot, partial(self._seal, seal_key, index))
            slot.memory.poison(nan)
        run.sync()
        doorbells = doorbells and links > 1 and self.open_doorbells()
        captured = self.prepare(contestant.name, slots, doorbells)
        doorbells = doorbells and captured
        # With one link nothing of the inputs depends on the second key: no clock may stand still before it.
        answer = (
            self.by_doorbell(seal, begin, links) if doorbells
            else self.by_messages(seal, begin, links, together=links == 1))
        verdict, seed = self._verify(contestant, slots, self.library.key(begin), answer.digest)
        return ChainResult(verdict, seed, links, answer.unseal, answer.wall, answer.claim / links, captured, doorbells)

    def single_link_chains(
        self, contestant: Contestant, slots: Sequence[Slot], nan: bool, doorbells: bool = False,
    ) -> list[ChainResult]:
        """One chain of one link per slot. Raises ``WorkerFailure``.

        ``doorbells``: all of them in one graph that waits at a doorbell for each, if the contestant can be captured.
        """
        if not (doorbells and self.open_doorbells()):
            return [self.chain(contestant, [slot], nan) for slot in slots]
        keys = [os.urandom(KEY_BYTES) for _slot in slots]
        for slot, key in zip(slots, keys, strict=True):
            self.run.refresh(slot, partial(self._seal, self.library.key(key), 0))
            slot.memory.poison(nan)
        self.run.sync()
        if not self.prepare(contestant.name, slots, doorbells):
            return [self.chain(contestant, [slot], nan) for slot in slots]
        found = []
        for slot, key, answer in zip(slots, keys, self.one_by_one(keys), strict=True):
            verdict, seed = self._verify(contestant, [slot], self.library.key(key), answer.digest)
            found.append(ChainResult(verdict, seed, 1, 0.0, answer.wall, answer.claim, True, True))
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
