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
import importlib.util
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from scoring import arena, wire

_CTYPES = {"pointer": ctypes.c_void_p, "int": ctypes.c_int, "float": ctypes.c_float, "size_t": ctypes.c_size_t}
_UNSUPPORTED, _WORKSPACE = -1, -2      # kernels/common/status.h


class Failure(Exception):
    """The code under test failed; ``status`` is a word of ``scoring.model.Status``."""

    def __init__(self, status: str, message: str):
        super().__init__(message)
        self.status = status


class Slot:
    """One set of inputs and outputs in an arena, and the ``data`` a submission sees."""

    def __init__(self, block: arena.Arena, message: dict[str, Any]):
        self.arena = block
        specs = [
            arena.TensorSpec(t["name"], t["dtype"], tuple(t["shape"]), tuple(t["strides"]), t["offset"])
            for t in message["tensors"]
        ]
        self.tensors = {spec.name: spec.view(block.block) for spec in specs}
        self.outputs = {name: self.tensors[name] for name in message["outputs"]}
        self.arguments = message["arguments"]
        self.template = message["data"]

    def data(self) -> Any:
        return build(self.template, self.tensors)

    def forget(self, keep_arena: bool = False) -> None:
        """Drop all views, and the memory behind them unless it gets another use."""
        self.tensors.clear()
        self.outputs.clear()
        if not keep_arena:
            self.arena.close()


def build(template: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """The object a template describes: ``["tensor", name]``, ``["value", v]``, ``["float", "inf"]``,
    ``["tuple"|"list", […]]``, ``["dict", {…}]``."""
    kind, content = template
    match kind:
        case "tensor":
            return tensors[content]
        case "value":
            return content
        case "float":                # infinities and NaN, which JSON cannot spell
            return float(content)
        case "tuple":
            return tuple(build(item, tensors) for item in content)
        case "list":
            return [build(item, tensors) for item in content]
        case "dict":
            return {key: build(item, tensors) for key, item in content.items()}
    raise Failure("RUNTIME_ERROR", f"unknown template {kind!r}")


class NativeKernel:
    """A C symbol of a shared library, bound to slots by the judge's argument list."""

    def __init__(self, message: dict[str, Any], on_device: bool):
        for name in message.get("preload", []):
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        try:
            library = ctypes.CDLL(message["library"])
            self.function = getattr(library, message["symbol"])
        except (OSError, AttributeError) as error:
            raise Failure("RUNTIME_ERROR", f"cannot load the kernel: {error}") from error
        self.function.argtypes = [_CTYPES[kind] for kind in message["argtypes"]]
        self.function.restype = ctypes.c_int
        self.on_device = on_device

    def run(self, slot: Slot, workspace: int) -> None:
        queue = torch.cuda.current_stream().cuda_stream if self.on_device else 0
        values = [self._value(slot, kind, value, queue, workspace) for kind, value in slot.arguments]
        code = self.function(*values)
        if code == _UNSUPPORTED:
            raise Failure("UNSUPPORTED", "the kernel does not support this shape (it returned kUnsupportedShape)")
        if code == _WORKSPACE:
            raise Failure("RUNTIME_ERROR", "the kernel wants more workspace than binding.py gives (kWorkspaceTooSmall)")
        if code:
            raise Failure("RUNTIME_ERROR", f"the kernel returned error {code}{self._describe(code)}")

    def finish(self, slot: Slot) -> None:
        """Nothing: a native kernel writes straight into the judge's outputs."""

    def _value(self, slot: Slot, kind: str, value: Any, queue: int, workspace: int) -> Any:
        match kind:
            case "tensor":
                return slot.tensors[value].data_ptr()
            case "queue":
                return queue
            case "workspace":
                return workspace
            case "float":
                return float(value)
        return value

    def _describe(self, code: int) -> str:
        if not self.on_device:
            return ""
        return f" ({arena.error_string(code)})"


class PythonSubmission:
    """``custom_kernel(data)`` of a Python file."""

    def __init__(self, message: dict[str, Any]):
        path = Path(message["path"])
        for folder in reversed(message.get("sys_path", [])):
            sys.path.insert(0, folder)
        spec = importlib.util.spec_from_file_location(message.get("module", "submission"), path)
        if spec is None or spec.loader is None:
            raise Failure("RUNTIME_ERROR", f"{path.name} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:       # a submission may raise anything, SystemExit included
            raise Failure("RUNTIME_ERROR", f"importing {path.name} failed: {_trace(error)}") from error
        self.function: Callable[[Any], Any] | None = getattr(module, "custom_kernel", None)
        if not callable(self.function):
            raise Failure("RUNTIME_ERROR", f"{path.name} defines no custom_kernel(data)")
        self.partial = frozenset(message.get("partial", []))       # outputs a peer computes; all if empty
        self.results: dict[int, list[torch.Tensor]] = {}

    def run(self, slot: Slot, workspace: int) -> None:
        assert self.function is not None
        try:
            result = self.function(slot.data())
        except BaseException as error:
            raise Failure("RUNTIME_ERROR", f"custom_kernel failed: {_trace(error)}") from error
        self.results[id(slot)] = self._check(result, slot)

    def finish(self, slot: Slot) -> None:
        """Copy what the submission returned into the judge's outputs (unless it wrote there itself)."""
        for ours, theirs in zip(self._promised(slot), self.results.pop(id(slot), []), strict=False):
            if theirs.data_ptr() != ours.data_ptr() or theirs.stride() != ours.stride():
                ours.copy_(theirs.detach())      # a graph behind it would grow with every call

    def _promised(self, slot: Slot) -> list[torch.Tensor]:
        return [tensor for name, tensor in slot.outputs.items() if not self.partial or name in self.partial]

    def _check(self, result: Any, slot: Slot) -> list[torch.Tensor]:
        returned = list(result) if isinstance(result, tuple | list) else [result]
        promised = self._promised(slot)
        if len(returned) != len(promised):
            raise Failure(
                "INCORRECT_SHAPE", f"custom_kernel returned {len(returned)} outputs, expected {len(promised)}"
            )
        for index, (ours, theirs) in enumerate(zip(promised, returned, strict=True)):
            if not isinstance(theirs, torch.Tensor):
                raise Failure("INCORRECT_SHAPE", f"output {index} is {type(theirs).__name__}, not a tensor")
            if theirs.shape != ours.shape:
                raise Failure(
                    "INCORRECT_SHAPE", f"output {index} has shape {tuple(theirs.shape)}, expected {tuple(ours.shape)}"
                )
            if theirs.dtype != ours.dtype:
                raise Failure("INCORRECT_DTYPE", f"output {index} has dtype {theirs.dtype}, expected {ours.dtype}")
            if theirs.device.type != ours.device.type:
                raise Failure("INCORRECT_SHAPE", f"output {index} lies on {theirs.device}, expected {ours.device}")
        return returned


class Worker:
    """State of one worker: arenas, slots, contestants and their captured graphs."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self.device: int | None = None
        self.workspace_arena: arena.Arena | None = None
        self.slots: dict[str, Slot] = {}
        self.contestants: dict[str, NativeKernel | PythonSubmission] = {}
        self.graphs: dict[str, tuple[Any, list[Slot], dict[int, list[torch.Tensor]]]] = {}

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

    def do_slot(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """A new slot, or a known one whose shapes or plain values changed: in its old arena unless one is sent."""
        old = self.slots.pop(message["slot"], None)
        if old is not None:
            self.graphs.clear()
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
        self.graphs.clear()
        for contestant in self.contestants.values():
            if isinstance(contestant, PythonSubmission):
                contestant.results.clear()
        slots, self.slots = list(self.slots.values()), {}
        for slot in slots:
            slot.forget()
        if self.workspace_arena is not None:
            self.workspace_arena.close()
            self.workspace_arena = None
        if self.device is not None:
            torch.cuda.empty_cache()

    def do_load(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        kind = message["kind"]
        self.contestants[message["contestant"]] = (
            NativeKernel(message, self.device is not None) if kind == "native" else PythonSubmission(message)
        )

    def do_call(self, message: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        """One call, finished: outputs are in the arena when the answer leaves."""
        contestant, slot = self.contestants[message["contestant"]], self.slots[message["slot"]]
        self._synchronize()
        begin = time.perf_counter()
        contestant.run(slot, self.workspace)
        self._synchronize()
        seconds = time.perf_counter() - begin
        contestant.finish(slot)
        self._synchronize()
        return {"seconds": seconds}

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
                for slot in slots:
                    contestant.run(slot, self.workspace)
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
        self._synchronize()
        if self.device is None:
            started = time.perf_counter()
            for slot in slots:
                contestant.run(slot, self.workspace)
            seconds = time.perf_counter() - started
        else:
            begin, end = _event(), _event()
            begin.record()
            for slot in slots:
                contestant.run(slot, self.workspace)
            end.record()
            end.synchronize()
            seconds = begin.elapsed_time(end) * 1e-3
        for slot in slots:
            contestant.finish(slot)
        self._synchronize()
        return {"seconds": seconds}

    def _synchronize(self) -> None:
        if self.device is not None:
            try:
                torch.cuda.synchronize()
            except RuntimeError as error:
                raise Failure("RUNTIME_ERROR", f"the device reports: {str(error).splitlines()[0]}") from error


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _trace(error: BaseException) -> str:
    """The last lines of a traceback: enough to find the place, short enough for a table."""
    return "".join(traceback.format_exception(error))[-4000:].strip()


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
            reply = {"ok": False, "status": "RUNTIME_ERROR", "error": _trace(error)}
        reply["nonce"] = message.get("nonce", "")
        try:
            wire.send(sock, reply)
        except wire.WireError:
            return


def main() -> None:
    _die_with_parent()
    sock = socket.socket(fileno=int(sys.argv[1]))
    serve(sock)


if __name__ == "__main__":
    main()
