# SPDX-License-Identifier: MIT
"""The process that runs the code under test: it obeys the judge and decides nothing.

Started as ``python -m scoring.worker FD`` with one end of a socket pair; answers one message at a time
(``scoring.wire``) until the socket closes. It holds no reference, no seed and no expectation: inputs, outputs and their
poison lie in arenas the judge owns, and every reply is only a claim. Imports the standard library and torch only, so
that it runs in any competition container.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

from scoring import arena, wire
from scoring.chain.library import ChainError, ChainLibrary
from scoring.chain.links import Idle, Links, Runnable
from scoring.contestants import Failure, NativeKernel, PythonSubmission, Slot, trace
from scoring.emulation import Emulator, explain


class Worker:
    """State of one worker: arenas, slots, contestants and their captured graphs."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self.device: int | None = None
        self.emulator: Emulator | None = None
        self.workspace_arena: arena.Arena | None = None
        self.slots: dict[str, Slot] = {}
        self.contestants: dict[str, Runnable] = {}
        self.graphs: dict[str, tuple[Any, list[Slot], dict[int, list[torch.Tensor]]]] = {}
        self.chain: ChainLibrary | None = None
        self.links: dict[tuple[Any, ...], Links] = {}
        self.armed: Links | None = None
        self.doors: tuple[arena.Arena, int] | None = None      # and where the device sees them

    def handle(self, message: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        operation = getattr(self, "do_" + str(message.get("do")), None)
        if operation is None:
            raise Failure("RUNTIME_ERROR", f"unknown request {message.get('do')!r}")
        reply = operation(message, fds)
        return reply if isinstance(reply, dict) else {}

    def do_hello(self, message: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        """Choose the device; answer with facts that go into the record's system section."""
        self.device = message["device"]
        if self.device is not None:
            torch.cuda.set_device(self.device)
            torch.zeros(1, device="cuda")        # creates the context now, not inside the first call
        elif message.get("threads"):
            torch.set_num_threads(message["threads"])
        return {"torch": torch.__version__, "python": sys.version.split()[0], "pid": os.getpid()}

    def do_emulate(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """Load the emulated device, before any kernel that needs it."""
        try:
            self.emulator = Emulator(message["library"], message["options"])
        except (OSError, ValueError) as error:
            raise Failure("RUNTIME_ERROR", f"the emulator cannot be loaded: {error}") from error

    def do_slot(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """A new slot, or a known one whose shapes or plain values changed: in its old arena unless one is sent."""
        old = self.slots.pop(message["slot"], None)
        if old is not None:
            self._forget_captures()
            old.forget(keep_arena="arena" not in message)
        if "arena" in message:
            block = arena.attach(message["arena"], fds[0] if fds else None, self.device or 0)
        elif old is not None:
            block = old.arena
        else:
            raise Failure("RUNTIME_ERROR", "a slot without memory")
        self.slots[message["slot"]] = Slot(block, message)

    def do_workspace(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """Scratch memory that all slots share: calls never overlap."""
        self.workspace_arena = arena.attach(message["arena"], fds[0] if fds else None, self.device or 0)

    @property
    def workspace(self) -> int:
        return self.workspace_arena.block.data_ptr() if self.workspace_arena else 0

    def do_drop_slots(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """Forget slots, graphs and results, so that the judge can free the memory."""
        self._forget_captures()
        for contestant in self.contestants.values():
            if isinstance(contestant, PythonSubmission):
                contestant.results.clear()
                contestant.held.clear()
        slots, self.slots = list(self.slots.values()), {}
        for slot in slots:
            slot.forget()
        if self.workspace_arena is not None:
            self.workspace_arena.close()
            self.workspace_arena = None
        self._close_doors()
        if self.device is not None:
            torch.cuda.empty_cache()

    def _close_doors(self) -> None:
        doors, self.doors = self.doors, None
        if doors is not None and self.chain is not None:
            self.chain.close(doors[0].block)
            doors[0].close()

    def do_load(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        native = message["kind"] == "native"
        self.contestants[message["contestant"]] = (
            NativeKernel(message, self.device is not None, self.emulator) if native else PythonSubmission(message)
        )

    def do_idle(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """A contestant of ours, to see what a chain costs by itself."""
        self.contestants[message["contestant"]] = Idle(message["copies"], message["flops"], self.device is not None)

    def do_chain(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """Load the chain's library, before any code under test is here."""
        device = "cpu" if self.device is None else f"cuda:{self.device}"
        self.chain = ChainLibrary(message["library"], device, message["preload"])

    def do_arm(self, message: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        """Get everything ready for a chain over some slots, whose inputs nobody can read yet."""
        if self.chain is None:
            raise Failure("RUNTIME_ERROR", "no chain was loaded")
        doors = self.doors[1] if self.doors is not None and message["doors"] else 0
        opened = message["opened"]
        key = (message["contestant"], doors, opened, *message["slots"])
        if key not in self.links:
            slots = [self.slots[name] for name in message["slots"]]
            self.links[key] = Links(
                self.chain, self.contestants[message["contestant"]], slots, message["fresh"], self.workspace, doors,
                opened)
        self.armed = self.links[key]
        self.armed.warm_up()
        return {"captured": self.armed.captured}

    def do_doors(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """Host memory at which the device is to wait for the keys of a chain."""
        if self.chain is None:
            raise Failure("RUNTIME_ERROR", "no chain was loaded")
        block = arena.attach(message["arena"], fds[0] if fds else None, self.device or 0)
        try:
            self.doors = block, self.chain.open(block.block)
        except ChainError as error:
            block.close()
            raise Failure("UNSUPPORTED", str(error)) from error

    def do_stand(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """Start the armed chain, which waits at the doors; the answer comes when it is over."""
        links = self._armed()
        if not links.captured:
            raise Failure("RUNTIME_ERROR", "a chain that is not captured cannot wait at a door")
        links.stand()

    def do_unseal(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """Make the inputs of the armed chain readable."""
        self._armed().unseal(bytes.fromhex(message["secret"]))

    def do_go(self, message: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        """Run the links of the armed chain from the secret on; with ``seal``, make its inputs readable first."""
        links = self._armed()
        if "seal" in message:
            links.unseal(bytes.fromhex(message["seal"]), wait=False)
        return links.run(bytes.fromhex(message["secret"]))

    def _armed(self) -> Links:
        if self.armed is None:
            raise Failure("RUNTIME_ERROR", "no chain is armed")
        return self.armed

    def _forget_captures(self) -> None:
        self.graphs.clear()
        self.links.clear()
        self.armed = None

    def do_call(self, message: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        """One call, finished: outputs are in the arena when the answer leaves."""
        contestant, slot = self.contestants[message["contestant"]], self.slots[message["slot"]]
        if self.emulator is not None:
            return self._emulated_call(contestant, slot, self.emulator)
        self._synchronize()
        begin = time.perf_counter()
        contestant.run(slot, self.workspace)
        self._synchronize()
        seconds = time.perf_counter() - begin
        contestant.finish(slot)
        self._synchronize()
        return {"seconds": seconds}

    def _emulated_call(
        self, contestant: Runnable, slot: Slot, emulator: Emulator
    ) -> dict[str, Any]:
        """One call with what the checks found and what was counted; how long it took here says nothing."""
        emulator.take_findings(), emulator.take_counters(), emulator.take_message()     # of whatever came before
        begin = time.perf_counter()
        try:
            with emulator.memory(contestant.memory(slot, self.workspace)):
                contestant.run(slot, self.workspace)
        except Failure as failure:
            found = explain(emulator.take_findings())
            raise Failure(failure.status, "\n".join(filter(None, [str(failure), found]))) from failure
        seconds = time.perf_counter() - begin
        contestant.finish(slot)
        return {"seconds": seconds, "findings": emulator.take_findings(), "counters": emulator.take_counters()}

    def do_capture(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """Record one call per slot into a graph."""
        contestant = self.contestants[message["contestant"]]
        slots = [self.slots[name] for name in message["slots"]]
        graph = torch.cuda.CUDAGraph()
        try:
            for _warm in range(2):           # lazy initialisation of libraries must not happen under capture
                contestant.run(slots[0], self.workspace)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                self._run_all(contestant, slots)
            if self._reuses_results(contestant, slots):
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    self._run_all(contestant, slots)
            torch.cuda.synchronize()
        except RuntimeError as error:
            raise Failure("RUNTIME_ERROR", f"the call cannot be captured in a graph: {error}") from error
        # A graph rewrites the same result tensors at every replay: keep them for as long as the graph.
        results = dict(contestant.results) if isinstance(contestant, PythonSubmission) else {}
        self.graphs[message["contestant"]] = (graph, slots, results)

    def do_replay(self, message: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        """Replay a captured graph once between two events; then put the outputs in place, untimed."""
        name = message["contestant"]
        contestant, (graph, slots, results) = self.contestants[name], self.graphs[name]
        begin, end = _event(), _event()
        torch.cuda.synchronize()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        seconds = begin.elapsed_time(end) * 1e-3
        if isinstance(contestant, PythonSubmission):
            contestant.results.update(results)
            for slot in slots:
                contestant.finish(slot)
            torch.cuda.synchronize()
        return {"seconds": seconds}

    def do_sweep(self, message: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        """One call per slot, back to back, between two events (or by the host clock without a device)."""
        contestant = self.contestants[message["contestant"]]
        slots = [self.slots[name] for name in message["slots"]]
        seconds = self._sweep(contestant, slots)
        if self._reuses_results(contestant, slots):
            seconds = self._sweep(contestant, slots)
        for slot in slots:
            contestant.finish(slot)
        self._synchronize()
        return {"seconds": seconds}

    def _sweep(self, contestant: Runnable, slots: Sequence[Slot]) -> float:
        self._synchronize()
        if self.device is None:
            started = time.perf_counter()
            self._run_all(contestant, slots)
            return time.perf_counter() - started
        begin, end = _event(), _event()
        begin.record()
        self._run_all(contestant, slots)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    def _run_all(self, contestant: Runnable, slots: Sequence[Slot]) -> None:
        for slot in slots:
            contestant.run(slot, self.workspace)
            if isinstance(contestant, PythonSubmission) and contestant.reuses:
                contestant.finish(slot)

    @staticmethod
    def _reuses_results(contestant: Runnable, slots: Sequence[Slot]) -> bool:
        """Whether it turned out just now that a submission returns the same memory for every call."""
        if not isinstance(contestant, PythonSubmission) or contestant.reuses:
            return False
        contestant.reuses = contestant.share_memory(slots)
        return contestant.reuses

    def _synchronize(self) -> None:
        if self.device is not None:
            try:
                torch.cuda.synchronize()
            except RuntimeError as error:
                raise Failure("RUNTIME_ERROR", f"the device reports: {str(error).splitlines()[0]}") from error


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _die_with_parent() -> None:
    """Have the kernel kill this process when the judge goes, however it goes (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)      # 1 = PR_SET_PDEATHSIG
    # A judge that went before this line has hung up as well. (Its process id says nothing: in a container it is 1.)


def serve(sock: socket.socket) -> None:
    """Answer until the judge hangs up."""
    worker = Worker(sock)
    while True:
        try:
            message, fds = wire.receive(sock)
        except wire.WireError:
            return
        try:
            reply = {"ok": True, **worker.handle(message, fds)}
        except Failure as failure:
            reply = {"ok": False, "status": failure.status, "error": str(failure)[-6000:]}
        except Exception as error:                       # noqa: BLE001 - whatever it was, the judge must hear of it
            reply = {"ok": False, "status": "RUNTIME_ERROR", "error": trace(error)}
        reply["nonce"] = message.get("nonce", "")
        try:
            wire.send(sock, reply)
        except wire.WireError:
            return


def main() -> None:
    _die_with_parent()
    gc.freeze()                      # nothing of what is imported by now is ever garbage
    gc.enable()
    sock = socket.socket(fileno=int(sys.argv[1]))
    serve(sock)


if __name__ == "__main__":
    main()
