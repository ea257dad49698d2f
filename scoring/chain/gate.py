# SPDX-License-Identifier: MIT
"""The judge's side of a commit chain: seal the inputs, hold the clock, and verify every link from the bytes.

What the worker says is its last digest. Everything else the judge has itself: it knows when it revealed the secret and
when the answer came, computes all digests again from private copies of the outputs, draws the inputs of every link
again, and checks every output against its own reference. docs/judge.md has the protocol and what it rests on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from scoring.caserun import CaseRun, Slot, claimed
from scoring.chain.library import KEY_BYTES, ChainLibrary
from scoring.check import Verdict
from scoring.model import Status

if TYPE_CHECKING:
    from scoring.caserun import Contestant


UNCOMMITTED = (
    "the outputs are not those the worker had committed itself to when the clock stopped: something wrote to them "
    "later (a thread, a stream or a process that was not waited for), or the digest was made up")


@dataclass(frozen=True)
class Chained:
    """One chain: the verdict over all its links, the seed of the first wrong one, and seconds by the judge's clock:
    ``unseal`` until the worker had the inputs (so it said), ``wall`` for the links.

    ``claim`` is what the worker says it spent in calls, per call (NaN if it cannot tell).
    """

    verdict: Verdict
    seed: int
    links: int
    unseal: float
    wall: float
    claim: float
    captured: bool


class Gate:
    """Chains of one contestant over slots of one case."""

    def __init__(self, run: CaseRun, library: ChainLibrary):
        self.run = run
        self.library = library

    @property
    def chains(self) -> bool:
        """Whether links can depend on one another; else a chain has one link."""
        return bool(self.run.slots[0].memory.layout.fresh)

    def arm(self, contestant: str, slots: Sequence[Slot]) -> bool:
        """Have the worker ready for a chain; whether it is captured in a graph. Raises ``WorkerFailure``."""
        fresh = slots[0].memory.layout.fresh if len(slots) > 1 else ()
        reply = self.run.ask(
            "arm", contestant=contestant, slots=[slot.name for slot in slots], fresh=list(fresh))
        return reply.get("captured") is True

    def unseal(self, secret: bytes) -> float:
        """Reveal the key of all inputs; seconds until the worker says that it has them. Raises ``WorkerFailure``."""
        begin = time.perf_counter()
        self.run.worker.request("unseal", self.run.call_seconds, secret=secret.hex())
        return time.perf_counter() - begin

    def go(self, secret: bytes, seal: bytes | None = None, links: int = 1) -> tuple[float, Mapping[str, Any]]:
        """Reveal where the links begin, and the key of the inputs if that was not done before; seconds until the
        answer, and the answer. Raises ``WorkerFailure``."""
        keys = {"secret": secret.hex()} | ({"seal": seal.hex()} if seal is not None else {})
        begin = time.perf_counter()
        reply = self.run.worker.request("go", (1 + links) * self.run.call_seconds, (), **keys)
        return time.perf_counter() - begin, reply

    def chain(self, contestant: Contestant, slots: Sequence[Slot], nan: bool) -> Chained:
        """One chain with fresh inputs in all ``slots``, verified link by link. Raises ``WorkerFailure``."""
        run = self.run
        seal, begin = os.urandom(KEY_BYTES), os.urandom(KEY_BYTES)
        seal_key = self.library.key(seal)
        for index, slot in enumerate(slots):
            run.refresh(slot, partial(self._seal, seal_key, index))
            slot.memory.poison(nan)
        run.sync()
        captured = self.arm(contestant.name, slots)
        if len(slots) > 1:
            unseal = self.unseal(seal)
            wall, reply = self.go(begin, links=len(slots))
        else:                # nothing of the inputs depends on the second key, so no clock may stand still between them
            unseal = 0.0
            wall, reply = self.go(begin, seal)
        verdict, seed = self._verify(contestant, slots, self.library.key(begin), reply)
        links = len(slots)
        return Chained(verdict, seed, links, unseal, wall, claimed(reply) / links, captured)

    def _seal(self, key: torch.Tensor, nonce: int, region: torch.Tensor) -> None:
        self.library.seal(region, key, nonce)

    def _verify(
        self, contestant: Contestant, slots: Sequence[Slot], key: torch.Tensor, reply: Mapping[str, Any]
    ) -> tuple[Verdict, int]:
        """The first link that is wrong, or that the worker's digest is not that of the bytes it gave."""
        outputs = [slot.memory.outputs() for slot in slots]       # before anything else: now they are ours
        self.run.sync()
        keys = [key]
        for given in outputs:
            digest = keys[-1].clone()
            for number, output in enumerate(given):
                nbytes = output.numel() * output.element_size()
                self.library.commit(output.data_ptr(), output.data_ptr(), nbytes, digest, digest, number)
            keys.append(digest)
        kept = reply.get("digest") == bytes(keys[-1].tolist()).hex()
        for slot, given, begin in zip(slots, outputs, keys, strict=False):
            if len(slots) > 1:
                for number, name in enumerate(slot.memory.layout.fresh):
                    self.library.mix(slot.memory.private[name], begin, number)
            verdict = self.run.verify_slot(slot, contestant, given)
            if not verdict.passed:
                return verdict, slot.seed
            if not kept:     # the inputs of all other links are drawn from digests that are not the worker's
                return Verdict(Status.TAMPERED, UNCOMMITTED), slot.seed
        return verdict, 0
