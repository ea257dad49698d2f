# SPDX-License-Identifier: MIT
"""What a worker can run: a C symbol of a shared library, or ``custom_kernel(data)`` of a Python file, on tensors.

Imports the standard library and torch only, as all of the worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from scoring.ipc import arena
from scoring.ipc.chain_library import ALIGNMENT
from scoring.ipc.emulator import Emulator
from scoring.ipc.group import of_rank
from scoring.ipc.requests import Extensions, NativeSpec, PythonSpec, ShareSlot
from scoring.ipc.template import TemplateError, UnsupportedData, build_data, describe_answer
from scoring.worker import lean
from scoring.worker.failure import ExtensionError, Failure
from scoring.worker.ranks import run_ranks, try_once

_UNSUPPORTED, _WORKSPACE = -1, -2      # kernels/common/status.h
_TRACE, _LINE = 4000, 500              # characters of a traceback, and of one of its lines, that are told


class Slot:
    """One set of inputs and outputs in an arena, by address and, for Python code, as tensors and ``data``."""

    def __init__(self, block: arena.Arena, request: ShareSlot):
        self.arena = block
        specs = [
            arena.TensorSpec(t["name"], t["dtype"], tuple(t["shape"]), tuple(t["strides"]), t["offset"])
            for t in request.tensors
        ]
        widths = {t["name"]: int(t["width"]) for t in request.tensors}
        self.specs = {spec.name: spec for spec in specs}
        self.sizes = {
            spec.name: arena.extent(spec.shape, spec.strides) * widths[spec.name] for spec in specs}
        self.memory = {spec.name: block.part(spec.offset, self.sizes[spec.name], widths[spec.name]) for spec in specs}
        self.promised = tuple(request.outputs)
        self.arguments = request.arguments
        self.template = request.data
        self.form = _listed(request.form)
        self.ranks = request.ranks
        begin, end = request.sealed
        self.sealed = block.part(begin, end - begin)      # all inputs, and the guards between them

    @functools.cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: spec.view(self.arena.block) for name, spec in self.specs.items()}

    @functools.cached_property
    def outputs(self) -> dict[str, torch.Tensor]:
        return {name: self.tensors[name] for name in self.promised}

    def data(self, rank: int | None = None, device: torch.device | None = None) -> Any:
        """Fresh objects around the tensors; of a distributed task those of one rank, moved to ``device``.

        Raises ``Failure``.
        """
        template, tensors = self.template, self.tensors
        if rank is not None:
            _kind, ranks = template
            template = ranks[rank]
        if device is not None and device.type != "cpu":
            tensors = {name: tensors[name].to(device) for name in _names(template) if name in tensors}
        try:
            return build_data(template, tensors)
        except (TemplateError, ImportError) as error:
            raise Failure("RUNTIME_ERROR", str(error)) from error

    def forget(self, keep_arena: bool = False) -> None:
        """Drop all views, and the memory behind them unless it gets another use."""
        for name in ("tensors", "outputs"):
            vars(self).pop(name, {}).clear()
        self.memory.clear()
        del self.sealed
        if not keep_arena:
            self.arena.close()


def _names(template: Any) -> Iterator[str]:
    """The words in a template, the names of its tensors among them."""
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping):
        for item in template.values():
            yield from _names(item)
    elif isinstance(template, tuple | list):
        for item in template:
            yield from _names(item)


def _listed(form: Any) -> Any:
    """A form with lists, as ``describe_answer`` makes them, of one that came as tuples or lists."""
    if isinstance(form, dict):
        return {key: _listed(item) for key, item in form.items()}
    return [_listed(item) for item in form] if isinstance(form, tuple | list) else form


class NativeKernel:
    """A C symbol of a shared library, bound to slots by the judge's argument list."""

    def __init__(self, spec: NativeSpec, on_device: bool, emulator: Emulator | None = None):
        for name in spec.preload:
            ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        try:
            library = ctypes.CDLL(spec.library)
            self.function = getattr(library, spec.symbol)
        except OSError as error:
            raise Failure("RUNTIME_ERROR", f"cannot load the kernel: {error}") from error
        except AttributeError as error:
            text = f"the kernel exports no {spec.symbol}, the function that kernel.h declares (as extern \"C\")"
            raise Failure("RUNTIME_ERROR", text) from error
        self.function.argtypes = [
            ctypes.c_void_p if kind == "pointer" else getattr(ctypes, f"c_{kind}") for _name, kind in spec.parameters]
        self.function.restype = ctypes.c_int
        self.on_device = on_device
        self.emulator = emulator
        self.parameters = [name for name, _kind in spec.parameters]

    def memory(self, slot: Slot, workspace: int) -> list[tuple[str, int, int]]:
        """Name, address and bytes of everything the kernel is given a pointer to."""
        given = []
        for name, (kind, value) in zip(self.parameters, slot.arguments, strict=True):
            if kind == "tensor":
                given.append((name, slot.memory[value].data_ptr(), slot.sizes[value]))
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
        places = {name: slot.memory[name].data_ptr() for name in slot.promised}
        return [(place, place, slot.sizes[name]) for name, place in places.items()]

    def _value(self, slot: Slot, kind: str, value: Any, queue: int, workspace: int) -> Any:
        match kind:
            case "tensor":
                return slot.memory[value].data_ptr()
            case "queue":
                return queue
            case "workspace":
                return workspace
            case "float" | "double":
                return float(value)
        return value

    def _describe(self, code: int) -> str:
        if self.emulator is not None:
            message = self.emulator.take_message()
            return f" ({self.emulator.describe(code)})" + (f"\n{message}" if message else "")
        return f" ({arena.error_string(code)})" if self.on_device else ""


class PythonSubmission:
    """``custom_kernel(data)`` of a Python file."""

    def __init__(self, spec: PythonSpec, emulator: Emulator | None = None, built: list[dict[str, Any]] | None = None):
        """Where ``cuda`` means the CPU, Triton kernels run in Triton's interpreter, but for an ``emulator``.

        ``built`` hears what ``load_inline`` compiles, also of a file that cannot be loaded.
        """
        lean.complete()
        self.spec = spec
        self.partial = frozenset(spec.partial)       # outputs a peer computes; all if empty
        self.results: dict[int, list[torch.Tensor]] = {}
        self.held: list[torch.Tensor] = []
        self.spare: dict[int, torch.Tensor] = {}
        self.reuses = False          # one buffer for all results: each has to be copied before the next call
        if spec.gpus:                # a process that has used a GPU cannot be forked: each rank imports the file itself
            try_once(lambda: PythonSubmission(replace(spec, gpus=False)))
            return
        from scoring.ipc import stand_in  # made of torch's classes

        path = Path(spec.path)
        self.stand_in = stand_in
        self.mode = stand_in.StandIn(claims=True) if spec.stand_in else None
        if spec.stand_in and emulator is None:
            os.environ["TRITON_INTERPRET"] = "1"
        self.more: Mapping[Any, Mapping[str, Any]] = {}
        if spec.extensions is not None:
            self._prepare_gpu(spec, spec.extensions, emulator, built if built is not None else [])
        for folder in reversed(spec.sys_path):
            sys.path.insert(0, folder)
        found = importlib.util.spec_from_file_location(spec.module, path)
        if found is None or found.loader is None:
            raise Failure("COMPILE_ERROR", f"{path.name} is not a Python file")
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module
        try:
            with self.surroundings():
                found.loader.exec_module(module)
        except BaseException as error:       # a submission may raise anything, SystemExit included
            raise self.failure(error, f"importing {path.name}", "COMPILE_ERROR") from error
        names = [name for name, _positions in spec.entries] or ["custom_kernel"]
        lacking = [name for name in names if not callable(getattr(module, name, None))]
        if lacking:
            wanted = "(data)" if lacking == ["custom_kernel"] else "(…), which the task asks for"
            raise Failure("COMPILE_ERROR", f"{path.name} defines no {' and no '.join(lacking)}{wanted}")
        functions = [getattr(module, name) for name in names]
        self.function: Callable[[Any], Any] = functions[0]
        if spec.entries:
            places = [positions for _name, positions in spec.entries]
            calls = list(zip(functions, places, strict=True))
            self.function = lambda data: tuple(call(*(data[i] for i in positions)) for call, positions in calls)

    @contextlib.contextmanager
    def surroundings(self, rank: int = 0, count: int = 1) -> Iterator[None]:
        """Around the submission's own code."""
        if self.mode is None:
            yield
            return
        self.mode.rank = rank
        with self.stand_in.stubs(self.mode, count, self.more), self.mode:
            yield

    def _prepare_gpu(
        self, spec: PythonSpec, how: Extensions, emulator: Emulator | None, built: list[dict[str, Any]],
    ) -> None:
        """What a submission for a GPU that is not here needs beside the stand-in."""
        from scoring.worker import gpu
        from scoring.worker.extensions import Builder

        names = emulator.names if emulator is not None else {}
        builder = Builder(how, Path(spec.path).read_text(encoding="utf-8", errors="replace"), built, names)
        self.more = gpu.replacements(how, builder)
        if emulator is not None:
            emulator.names[spec.path] = how.shown
            if gpu.uses_triton(spec.sys_path, Path(spec.path)):
                gpu.activate_triton(emulator, how.gpu)

    def failure(self, error: BaseException, what: str, status: str = "RUNTIME_ERROR") -> Failure:
        """What to tell the judge of an ``error`` that is being handled."""
        if isinstance(error, ExtensionError):
            return Failure("COMPILE_ERROR", str(error))
        if isinstance(error, ModuleNotFoundError) and error.name:
            return Failure(status, f"{what} failed: {trace(error)}", needs=error.name.split(".")[0])
        if self.mode is not None and (gpu := self.stand_in.needs_gpu(error)):
            return Failure("UNAVAILABLE", f"{what} needs {gpu}")
        return Failure(status, f"{what} failed: {trace(error)}")

    def memory(self, slot: Slot, workspace: int) -> list[tuple[str, int, int]]:
        """Name, address and bytes of the tensors in ``data``."""
        return [(name, tensor.data_ptr(), slot.sizes[name]) for name, tensor in slot.tensors.items()]

    def run(self, slot: Slot, workspace: int) -> None:
        if slot.ranks:
            self.results[id(slot)] = self._run_ranks(slot)
            return
        try:
            data = slot.data()
            with self.surroundings():
                result = self.function(data)
        except Failure:
            raise
        except BaseException as error:
            raise self.failure(error, "custom_kernel") from error
        self.results[id(slot)] = self.check(result, slot)

    def _run_ranks(self, slot: Slot) -> list[torch.Tensor]:
        gpus = self.spec.gpus

        def call(rank: int) -> Any:
            own = PythonSubmission(replace(self.spec, gpus=False)) if gpus else self
            data = slot.data(rank, of_rank(rank, gpus))
            try:
                with own.surroundings(rank, slot.ranks):
                    return own.function(data)
            except BaseException as error:
                raise own.failure(error, f"custom_kernel of rank {rank}") from error

        return run_ranks(call, slot.ranks, slot.form, list(slot.outputs.values()), gpus)

    def places(self, slot: Slot) -> list[dict[str, Any]]:
        """Where the newest results lie that ``finish`` will copy (``worker.replay.put_in_place`` reads this)."""
        pairs = zip(self._promised(slot), self.results.get(id(slot), []), strict=False)
        return [
            {"to": ours.data_ptr(), "from_": theirs.data_ptr(), "shape": list(theirs.shape),
             "strides": list(theirs.stride()), "width": theirs.element_size()}
            for ours, theirs in pairs
            if theirs.data_ptr() != ours.data_ptr() or theirs.stride() != ours.stride()
        ]

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

    def check(self, result: Any, slot: Slot) -> list[torch.Tensor]:
        """The tensors of what a call returned, which fit the judge's outputs.

        Raises ``Failure``; if the judge has only guessed at the outputs (``slot.form``), it is told what came.
        """
        if slot.form is not None:
            return self._fits(result, slot)
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

    def _fits(self, result: Any, slot: Slot) -> list[torch.Tensor]:
        try:
            answer, returned = describe_answer(result)
        except UnsupportedData as error:
            raise Failure("INCORRECT_SHAPE", f"custom_kernel: {error}") from error
        ours = list(slot.outputs.values())
        expected = tuple((tuple(t.shape), str(t.dtype).removeprefix("torch.")) for t in ours)
        if (answer.form, answer.tensors) != (slot.form, expected):
            raise Failure("INCORRECT_SHAPE", "the answers of custom_kernel change their shapes from call to call",
                          answer=answer)
        strays = [theirs for theirs, mine in zip(returned, ours, strict=True) if theirs.device.type != mine.device.type]
        if strays:
            raise Failure("INCORRECT_SHAPE", f"an output lies on {strays[0].device}, expected {ours[0].device}")
        return returned


def trace(error: BaseException) -> str:
    """The last lines of a traceback: enough to find the place, short enough for a table. It starts where the
    submission does: frames of this file, which called it, and of the import system are nobody's mistake.

    To be called while ``error`` is handled: what its class says of its traceback may be anything.
    """
    found = sys.exc_info()[2]
    while found is not None and found.tb_frame.f_code.co_filename.startswith((__file__, "<frozen importlib")):
        found = found.tb_next
    lines = "".join(traceback.format_exception(type(error), error, found)).splitlines()
    lines = [line if len(line) <= _LINE else f"{line[:_LINE]}…" for line in lines]       # or one hides all the others
    return "\n".join(lines)[-_TRACE:].strip()


def _plain(tensor: torch.Tensor) -> bool:
    """Whether the tensor's bytes, one after the other from its address on, are its elements."""
    return (type(tensor) is torch.Tensor and tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()
            and tensor.data_ptr() % ALIGNMENT == 0)
