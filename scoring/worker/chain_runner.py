# SPDX-License-Identifier: MIT
"""The worker's side of a commit chain: unseal, then link by link mix, call, commit; the links as one graph if possible.

All of it runs in a process that the code under test can change at will. That is no matter: the judge believes the last
digest only, after computing it from the outputs it was given (docs/judge.md).

Imports the standard library and torch only.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from scoring.ipc.arena import Memory
from scoring.ipc.chain_library import BLOCK, DOORBELL_BYTES, KEY_BYTES, Bytes, ChainLibrary
from scoring.worker.loaders import NativeKernel, PythonSubmission, Slot


class NullKernel:
    """A contestant that only fills its outputs with zeros: what is known of it tells what a chain costs by itself.

    It writes, as a kernel does, so that the digests find as much unwritten cache as they will in earnest, and on a GPU
    multiplies matrices of about ``flops``, so that the chain's parts run at the clocks they will have then. ``copies``:
    its results lie in memory of its own, as those of a submission.
    """

    def __init__(self, copies: bool, flops: float, on_device: bool):
        self.copies, self.on_device = copies, on_device
        self.spare: dict[str, Bytes] = {}
        self.load: list[torch.Tensor] = []
        size = round((flops / 2) ** (1 / 3) / 128) * 128
        if on_device and size:
            shape = (size, size)
            self.load = [torch.randn(shape, device="cuda").bfloat16() for _operand in range(3)]

    def memory(self, slot: Slot, workspace: int) -> list[tuple[str, int, int]]:
        return []

    def run(self, slot: Slot, workspace: int) -> None:
        if self.load:
            torch.mm(self.load[0], self.load[1], out=self.load[2])
        for result in self._results(slot).values():
            result.zero_()

    def finish(self, slot: Slot) -> None:
        return

    def commits(self, slot: Slot) -> list[tuple[int, int, int]]:
        results = self._results(slot)
        return [(results[name].data_ptr(), slot.memory[name].data_ptr(), slot.sizes[name]) for name in slot.promised]

    def _results(self, slot: Slot) -> Mapping[str, Bytes]:
        if not self.copies:
            return slot.outputs if self.on_device else {name: slot.memory[name] for name in slot.promised}
        for name in slot.promised:
            ours = slot.memory[name]
            if name not in self.spare or self.spare[name].numel() != ours.numel():
                self.spare[name] = (
                    torch.empty_like(slot.outputs[name]) if self.on_device else Memory.zeros(slot.sizes[name]))
        return self.spare


Runnable = NativeKernel | PythonSubmission | NullKernel


class ChainRunner:
    """One chain over ``slots``, one link each; it can run as often as the slots are filled anew.

    ``fresh`` names the tensors that every link draws anew. On a GPU all links are captured in one graph if the
    contestant can be captured (``captured``).

    ``doorbells``: where the device sees them, in host memory that the judge has as well; 0 for none. The graph is then
    the whole chain and is launched before any key is revealed. It waits at the first doorbell for the key of the
    inputs, unseals them and answers there; it waits at the second one for where the links begin, and leaves the last
    digest there. Without ``fresh``, links cannot depend on one another: each has a doorbell of its own, where it waits
    for the key of its inputs and leaves its digest.

    ``unsealed``: the inputs are not sealed (calibration). One block is unsealed all the same, for the launch's cost.
    """

    def __init__(
        self, library: ChainLibrary, contestant: Runnable, slots: Sequence[Slot], fresh: Sequence[str], workspace: int,
        doorbells: int = 0, unsealed: bool = False,
    ):
        self.library = library
        self.contestant = contestant
        self.slots = slots
        self.fresh = fresh
        self.workspace = workspace
        self.doorbells = doorbells
        self.unsealed = unsealed
        self.keys = library.keys(len(slots) + 1)
        self.seal_key = library.keys(1)[0]
        self.on_device = library.on_device
        # What the keys are copied to a GPU from.
        self.host: Any = (
            torch.zeros((2, KEY_BYTES), dtype=torch.uint8, pin_memory=True) if self.on_device else (None, None))
        self.graph: Any = None
        self.seconds = 0.0
        if self.on_device:
            self._capture()

    @property
    def captured(self) -> bool:
        return self.graph is not None

    def warm_up(self) -> None:
        """Bring this process's context, clocks and page tables onto the GPU, so that the clock does not count that.

        Sealed twice with one key, the inputs are as unreadable as before.
        """
        if self.on_device:
            for _twice in range(2):
                for index, slot in enumerate(self.slots):
                    self.library.seal(slot.sealed, self.seal_key, index)
            torch.cuda.synchronize()

    def unseal(self, secret: bytes, wait: bool = True) -> None:
        """Make the inputs of all slots readable; ``wait`` until they are."""
        self._tell(self.seal_key, self.host[0], secret)
        self._unseal(self.slots, self.seal_key)
        if self.on_device and wait:
            torch.cuda.synchronize()

    def launch(self) -> None:
        """The whole captured chain, which waits at the doorbells for its keys; when this is over, so is the chain."""
        self.graph.replay()
        torch.cuda.synchronize()

    def run(self, secret: bytes) -> dict[str, Any]:
        """All links from ``secret`` on: the last digest, and the seconds spent in calls where a host clock can tell
        (without a GPU)."""
        self._tell(self.keys[0], self.host[1], secret)
        self.seconds = 0.0
        if self.graph is not None:
            self.graph.replay()
        else:
            self._links()
        last = bytes(self.keys[len(self.slots)].tolist()).hex()      # waits for the device
        return {"digest": last} if self.on_device else {"digest": last, "seconds": self.seconds}

    def _unseal(self, slots: Sequence[Slot], key: Bytes) -> None:
        for index, slot in enumerate(slots):
            self.library.seal(slot.sealed, key, index)

    def _between_doorbells(self) -> None:
        """Unseal when the first doorbell is rung, run the links when the second is."""
        library, first, second = self.library, self.doorbells, self.doorbells + DOORBELL_BYTES
        library.listen(first, self.seal_key)
        self._unseal(self.slots, self.seal_key)
        library.answer(first, self.seal_key)
        library.listen(second, self.keys[0])
        self._links()
        library.answer(second, self.keys[len(self.slots)])

    def _one_by_one(self) -> None:
        """Unseal a slot and run its link when its doorbell is rung, slot by slot."""
        for index, slot in enumerate(self.slots):
            doorbell = self.doorbells + index * DOORBELL_BYTES
            self.library.listen(doorbell, self.keys[index])
            if self.unsealed:
                self.library.seal(slot.sealed[:BLOCK], self.keys[index], 0)
            else:
                self._unseal([slot], self.keys[index])
            self._link(index, slot)
            self.library.answer(doorbell, self.keys[index + 1])

    @staticmethod
    def _tell(key: Bytes, staging: torch.Tensor | None, secret: bytes) -> None:
        if isinstance(key, Memory):
            key.write(secret)
            return
        assert staging is not None
        staging.copy_(torch.frombuffer(bytearray(secret), dtype=torch.uint8))
        key.copy_(staging, non_blocking=True)

    def _links(self) -> None:
        for index, slot in enumerate(self.slots):
            self._link(index, slot)

    def _link(self, index: int, slot: Slot) -> None:
        library, key = self.library, self.keys[index]
        for number, name in enumerate(self.fresh):
            library.mix(slot.memory[name], key, number)
        begin = time.perf_counter()
        self.contestant.run(slot, self.workspace)
        self.seconds += time.perf_counter() - begin
        for number, (source, target, nbytes) in enumerate(self.contestant.commits(slot)):
            library.commit(source, target, nbytes, key, self.keys[index + 1], number)
            key = self.keys[index + 1]

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                if self.doorbells:
                    self._between_doorbells() if self.fresh else self._one_by_one()
                else:
                    self._links()
            torch.cuda.synchronize()
        except Exception:                # noqa: BLE001 - a submission may raise anything when it is captured
            torch.cuda.synchronize()
            return
        self.graph = graph
