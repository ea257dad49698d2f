# SPDX-License-Identifier: MIT
"""The process that runs the code under test: it obeys the judge and decides nothing.

Started as ``python -m scoring.worker SOCKET PIPE`` with one end of a socket pair, for questions, and one of a pipe, for
answers; answers one message at a time (``ipc.wire``) until the socket closes. It holds no reference, no seed and no
expectation: inputs, outputs and their poison lie in arenas the judge owns, and every reply is only a claim. Imports the
standard library and torch only, so that it runs in any competition container, and torch only where it is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from scoring.worker import lean

if __name__ == "__main__":
    lean.leave_out()

import torch

from scoring.ipc import arena, requests, wire
from scoring.ipc.chain_library import ChainError, ChainLibrary
from scoring.ipc.emulator import KEPT, Emulator, explain
from scoring.worker.chain_runner import ChainRunner, NullKernel, Runnable
from scoring.worker.failure import Failure
from scoring.worker.loaders import NativeKernel, PythonSubmission, Slot, trace

ERROR = 5000         # characters of an error that are told, at most twelve bytes of an answer each


class Worker:
    """State of one worker: arenas, slots, contestants and their captured graphs."""

    def __init__(self) -> None:
        self.device: int | None = None
        self.emulator: Emulator | None = None
        self.workspace_arena: arena.Arena | None = None
        self.slots: dict[str, Slot] = {}
        self.contestants: dict[str, Runnable] = {}
        self.built: dict[str, list[dict[str, Any]]] = {}      # extensions, by contestant
        self.graphs: dict[str, tuple[Any, list[Slot], dict[int, list[torch.Tensor]]]] = {}
        self.chain: ChainLibrary | None = None
        self.runners: dict[tuple[Any, ...], ChainRunner] = {}
        self.prepared: ChainRunner | None = None
        self.doorbells: tuple[arena.Arena, int] | None = None      # and where the device sees them

    def handle(self, message: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        """The reply to one request: ``do_<name>`` answers it. ``fds`` came with it and are its to close."""
        try:
            request = requests.decode(message)
        except requests.UnknownRequest as error:
            raise Failure("RUNTIME_ERROR", str(error)) from error
        reply = getattr(self, f"do_{request.name()}")(request, fds)
        return reply if isinstance(reply, dict) else {}

    def do_hello(self, request: requests.Hello, fds: Sequence[int]) -> dict[str, Any]:
        """Choose the device; the reply has facts for the record's system section."""
        self.device = request.device
        if self.device is not None:
            torch.cuda.set_device(self.device)
            torch.zeros(1, device="cuda")        # creates the context now, not inside the first call
        return {"torch": lean.version().__version__, "python": sys.version.split()[0], "pid": os.getpid()}

    def do_load_emulator(self, request: requests.LoadEmulator, fds: Sequence[int]) -> None:
        os.environ.pop("LD_PRELOAD", None)       # compilers need no device
        if lean.version().cuda or lean.version().hip:
            lean.complete()                      # the emulator has to see another runtime that will be in the process
        try:
            self.emulator = Emulator(request.library, request.options)
        except (OSError, ValueError) as error:
            raise Failure("RUNTIME_ERROR", f"the emulator cannot be loaded: {error}") from error

    def do_share_slot(self, request: requests.ShareSlot, fds: Sequence[int]) -> None:
        old = self.slots.pop(request.slot, None)
        if old is not None:
            self._forget_captures()
            old.forget(keep_arena=request.arena is None)
        if request.arena is not None:
            block = self._attach(request.arena, fds)
        elif old is not None:
            block = old.arena
        else:
            raise Failure("RUNTIME_ERROR", "a slot without memory")
        self.slots[request.slot] = Slot(block, request)

    def do_share_workspace(self, request: requests.ShareWorkspace, fds: Sequence[int]) -> None:
        self.workspace_arena = self._attach(request.arena, fds)

    def _attach(self, export: Mapping[str, Any], fds: Sequence[int]) -> arena.Arena:
        return arena.attach(dict(export), fds[0] if fds else None, self.device or 0)

    @property
    def workspace(self) -> int:
        return self.workspace_arena.address if self.workspace_arena else 0

    def do_drop_slots(self, request: requests.DropSlots, fds: Sequence[int]) -> None:
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
        self._close_doorbells()
        if self.device is not None:
            torch.cuda.empty_cache()

    def _close_doorbells(self) -> None:
        doorbells, self.doorbells = self.doorbells, None
        if doorbells is not None and self.chain is not None:
            self.chain.close(doorbells[0].block)
            doorbells[0].close()

    def do_load(self, request: requests.Load, fds: Sequence[int]) -> None:
        spec = request.spec
        built = self.built.setdefault(request.contestant, [])
        self.contestants[request.contestant] = (
            NativeKernel(spec, self.device is not None, self.emulator) if isinstance(spec, requests.NativeSpec)
            else PythonSubmission(spec, self.emulator, built))

    def do_built(self, request: requests.Built, fds: Sequence[int]) -> dict[str, Any]:
        return {"built": self.built.get(request.contestant, [])}

    def do_load_null_kernel(self, request: requests.LoadNullKernel, fds: Sequence[int]) -> None:
        self.contestants[request.contestant] = NullKernel(request.copies, request.flops, self.device is not None)

    def do_load_chain(self, request: requests.LoadChain, fds: Sequence[int]) -> None:
        device = "cpu" if self.device is None else f"cuda:{self.device}"
        self.chain = ChainLibrary(request.library, device, request.preload)

    def do_prepare_chain(self, request: requests.PrepareChain, fds: Sequence[int]) -> dict[str, Any]:
        """Everything that can be done before anybody can read the inputs."""
        if self.chain is None:
            raise Failure("RUNTIME_ERROR", "no chain was loaded")
        doorbells = self.doorbells[1] if self.doorbells is not None and request.doorbells else 0
        key = (request.contestant, doorbells, request.unsealed, *request.slots)
        if key not in self.runners:
            slots = [self.slots[name] for name in request.slots]
            self.runners[key] = ChainRunner(
                self.chain, self.contestants[request.contestant], slots, request.fresh, self.workspace, doorbells,
                request.unsealed)
        self.prepared = self.runners[key]
        self.prepared.warm_up()
        return {"captured": self.prepared.captured}

    def do_share_doorbells(self, request: requests.ShareDoorbells, fds: Sequence[int]) -> None:
        if self.chain is None:
            raise Failure("RUNTIME_ERROR", "no chain was loaded")
        block = self._attach(request.arena, fds)
        try:
            self.doorbells = block, self.chain.open(block.block)
        except ChainError as error:
            block.close()
            raise Failure("UNSUPPORTED", str(error)) from error

    def do_launch_chain(self, request: requests.LaunchChain, fds: Sequence[int]) -> None:
        runner = self._prepared()
        if not runner.captured:
            raise Failure("RUNTIME_ERROR", "a chain that is not captured cannot wait at a doorbell")
        runner.launch()

    def do_unseal_chain(self, request: requests.UnsealChain, fds: Sequence[int]) -> None:
        self._prepared().unseal(bytes.fromhex(request.secret))

    def do_run_chain(self, request: requests.RunChain, fds: Sequence[int]) -> dict[str, Any]:
        runner = self._prepared()
        if request.seal is not None:
            runner.unseal(bytes.fromhex(request.seal), wait=False)
        return runner.run(bytes.fromhex(request.secret))

    def _prepared(self) -> ChainRunner:
        if self.prepared is None:
            raise Failure("RUNTIME_ERROR", "no chain is prepared")
        return self.prepared

    def _forget_captures(self) -> None:
        self.graphs.clear()
        self.runners.clear()
        self.prepared = None

    def do_call(self, request: requests.Call, fds: Sequence[int]) -> dict[str, Any]:
        """One call, finished: outputs are in the arena when the answer leaves."""
        contestant, slot = self.contestants[request.contestant], self.slots[request.slot]
        if self.emulator is not None:
            if request.record:
                return self._recorded_call(contestant, slot, self.emulator, request.record, fds[0])
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
        self, contestant: Runnable, slot: Slot, emulator: Emulator, results: list[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """One call with what the checks found and what was counted; how long it took here says nothing.

        ``results`` gets where the results lie that are no outputs in place yet.
        """
        # Of whatever came before.
        emulator.take_findings(), emulator.take_counters(), emulator.take_message(), emulator.last_error()
        begin = time.perf_counter()
        try:
            with emulator.memory(contestant.memory(slot, self.workspace)):
                contestant.run(slot, self.workspace)
            unseen = emulator.last_error() if isinstance(contestant, PythonSubmission) else 0
            if unseen:              # a GPU's runtime would tell the next one who asks
                raise Failure("RUNTIME_ERROR", f"a call of the runtime failed, and the submission did not look: "
                                               f"{emulator.describe(unseen)}")
        except Failure as failure:
            said = dict.fromkeys([str(failure), emulator.take_message(), explain(emulator.take_findings())])
            raise Failure(failure.status, "\n".join(filter(None, said))) from failure
        seconds = time.perf_counter() - begin
        if results is not None and isinstance(contestant, PythonSubmission):
            results += contestant.places(slot)
        contestant.finish(slot)
        taken = {"findings": emulator.take_findings(), "counters": emulator.take_counters()}
        return {"seconds": seconds, "said": emulator.take_message(),
                **{name: found[: KEPT[name]] for name, found in taken.items()}}

    def _recorded_call(
        self, contestant: Runnable, slot: Slot, emulator: Emulator, how: str, file: int,
    ) -> dict[str, Any]:
        """One call whose launches are written to a file of the judge's."""
        results: list[dict[str, Any]] = []
        with os.fdopen(file, "wb") as out, emulator.recording(how):
            if how == "beside":
                reply = self._emulated_call(contestant, slot, emulator, results)
            else:
                begin = time.perf_counter()
                with emulator.memory(contestant.memory(slot, self.workspace)):
                    contestant.run(slot, self.workspace)
                reply = {"seconds": time.perf_counter() - begin}
            record = emulator.take_record()
            record |= {"slot": slot.arena.address, "workspace": self.workspace, "results": results}
            out.write(json.dumps(record).encode())
        return reply

    def do_capture(self, request: requests.Capture, fds: Sequence[int]) -> None:
        """Record one call per slot into a graph."""
        contestant = self.contestants[request.contestant]
        slots = [self.slots[name] for name in request.slots]
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
        self.graphs[request.contestant] = (graph, slots, results)

    def do_replay(self, request: requests.Replay, fds: Sequence[int]) -> dict[str, Any]:
        """Replay a captured graph once between two events; then put the outputs in place, untimed."""
        name = request.contestant
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

    def do_sweep(self, request: requests.Sweep, fds: Sequence[int]) -> dict[str, Any]:
        """One call per slot, back to back, between two events (or by the host clock without a device)."""
        contestant = self.contestants[request.contestant]
        slots = [self.slots[name] for name in request.slots]
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


def serve(sock: socket.socket, answers: wire.AnswerPipe) -> None:
    """Answer until the judge hangs up."""
    worker = Worker()
    while True:
        try:
            message, fds = wire.receive(sock)
        except wire.WireError:
            return
        try:
            reply = {"ok": True, **worker.handle(message, fds)}
        except Failure as failure:
            reply = failure.reply()
        except Exception as error:                       # noqa: BLE001 - whatever it was, the judge must hear of it
            reply = {"ok": False, "status": "RUNTIME_ERROR", "error": trace(error)[-ERROR:]}
        reply["nonce"] = message.get("nonce", "")
        try:
            wire.answer(answers, reply)
        except wire.WireError:
            return


def main() -> None:
    _die_with_parent()
    gc.freeze()                      # nothing of what is imported by now is ever garbage
    gc.enable()
    serve(socket.socket(fileno=int(sys.argv[1])), wire.AnswerPipe(int(sys.argv[2])))


if __name__ == "__main__":
    main()
