# SPDX-License-Identifier: MIT
"""What a worker can run: a C symbol of a shared library, or ``custom_kernel(data)`` of a Python file, on tensors.

Imports the standard library and torch only, as all of the worker.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from scoring import arena
from scoring.chain.library import ALIGNMENT
from scoring.emulation import Emulator

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
        self.sizes = {spec.name: spec.nbytes for spec in specs}
        self.outputs = {name: self.tensors[name] for name in message["outputs"]}
        self.arguments = message["arguments"]
        self.template = message["data"]
        begin, end = message["sealed"]
        self.sealed = block.block[begin:end]      # all inputs, and the guards between them

    def data(self) -> Any:
        return build(self.template, self.tensors)

    def forget(self, keep_arena: bool = False) -> None:
        """Drop all views, and the memory behind them unless it gets another use."""
        self.tensors.clear()
        self.outputs.clear()
        del self.sealed
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

    def __init__(self, message: dict[str, Any], on_device: bool, emulator: Emulator | None = None):
        for name in message.get("preload", []):
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        try:
            library = ctypes.CDLL(message["library"])
            self.function = getattr(library, message["symbol"])
        except OSError as error:
            raise Failure("RUNTIME_ERROR", f"cannot load the kernel: {error}") from error
        except AttributeError as error:
            text = f"the kernel exports no {message['symbol']}, the function that kernel.h declares (as extern \"C\")"
            raise Failure("RUNTIME_ERROR", text) from error
        self.function.argtypes = [_CTYPES[kind] for kind in message["argtypes"]]
        self.function.restype = ctypes.c_int
        self.on_device = on_device
        self.emulator = emulator
        self.parameters = message.get("parameters", [])

    def memory(self, slot: Slot, workspace: int) -> list[tuple[str, int, int]]:
        """Name, address and bytes of everything the kernel is given a pointer to."""
        given = []
        for name, (kind, value) in zip(self.parameters, slot.arguments, strict=True):
            if kind == "tensor":
                given.append((name, slot.tensors[value].data_ptr(), slot.sizes[value]))
            elif kind == "workspace" and workspace:
                size = next((v for n, (_k, v) in zip(self.parameters, slot.arguments, strict=True)
                             if n == "workspace_bytes"), 0)
                given.append((name, workspace, size))
        return given

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

    def commits(self, slot: Slot) -> list[tuple[int, int, int]]:
        """(source, target, bytes) of every output: it lies where it belongs."""
        return [(ours.data_ptr(), ours.data_ptr(), slot.sizes[name]) for name, ours in slot.outputs.items()]

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
        if self.emulator is not None:
            message = self.emulator.take_message()
            return f" ({self.emulator.describe(code)})" + (f"\n{message}" if message else "")
        return f" ({arena.error_string(code)})" if self.on_device else ""


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
            raise Failure("RUNTIME_ERROR", f"importing {path.name} failed: {trace(error)}") from error
        self.function: Callable[[Any], Any] | None = getattr(module, "custom_kernel", None)
        if not callable(self.function):
            raise Failure("RUNTIME_ERROR", f"{path.name} defines no custom_kernel(data)")
        self.partial = frozenset(message.get("partial", []))       # outputs a peer computes; all if empty
        self.results: dict[int, list[torch.Tensor]] = {}
        self.held: list[torch.Tensor] = []
        self.spare: dict[int, torch.Tensor] = {}
        self.reuses = False          # one buffer for all results: each has to be copied before the next call

    def memory(self, slot: Slot, workspace: int) -> list[tuple[str, int, int]]:
        """Name, address and bytes of the tensors in ``data``."""
        return [(name, tensor.data_ptr(), slot.sizes[name]) for name, tensor in slot.tensors.items()]

    def run(self, slot: Slot, workspace: int) -> None:
        assert self.function is not None
        try:
            result = self.function(slot.data())
        except BaseException as error:
            raise Failure("RUNTIME_ERROR", f"custom_kernel failed: {trace(error)}") from error
        self.results[id(slot)] = self._check(result, slot)

    def finish(self, slot: Slot) -> None:
        """Copy what the submission returned into the judge's outputs (unless it wrote there itself)."""
        for ours, theirs in zip(self._promised(slot), self.results.pop(id(slot), []), strict=False):
            if theirs.data_ptr() != ours.data_ptr() or theirs.stride() != ours.stride():
                ours.copy_(theirs.detach())      # a graph behind it would grow with every call

    def commits(self, slot: Slot) -> list[tuple[int, int, int]]:
        """(source, target, bytes) of every output of the newest call; the sources live until the next one.

        What was written in place is copied, too, if nowhere useful: the judge subtracts one copy from every
        submission's time.
        """
        self.held = self.results.pop(id(slot), [])
        places = []
        for (name, ours), theirs in zip(slot.outputs.items(), self.held, strict=True):
            size, source = slot.sizes[name], theirs
            if not _plain(theirs):
                ours.copy_(theirs.detach())
                source = ours
            target = ours if source.data_ptr() != ours.data_ptr() else self._spare(size, ours.device)
            places.append((source.data_ptr(), target.data_ptr(), size))
        return places

    def share_memory(self, slots: Sequence[Slot]) -> bool:
        """Whether the newest results for different slots lie in the same memory, so that only the last one is left."""
        places = [tensor.data_ptr() for slot in slots for tensor in self.results.get(id(slot), []) if tensor.numel()]
        return len(set(places)) < len(places)

    def _spare(self, size: int, device: torch.device) -> torch.Tensor:
        if size not in self.spare:
            self.spare[size] = torch.empty(max(size, 1), dtype=torch.uint8, device=device)
        return self.spare[size]

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


def trace(error: BaseException) -> str:
    """The last lines of a traceback: enough to find the place, short enough for a table. It starts where the
    submission does: frames of this file, which called it, and of the import system are nobody's mistake.

    To be called while ``error`` is handled: what its class says of its traceback may be anything.
    """
    found = sys.exc_info()[2]
    while found is not None and found.tb_frame.f_code.co_filename.startswith((__file__, "<frozen importlib")):
        found = found.tb_next
    return "".join(traceback.format_exception(type(error), error, found))[-4000:].strip()


def _plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor's bytes, one after the other from its address on, are its elements."""
    return (type(tensor) is torch.Tensor and tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()
            and tensor.data_ptr() % ALIGNMENT == 0)
