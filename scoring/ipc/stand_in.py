# SPDX-License-Identifier: MIT
"""Where no GPU is, ``cuda`` in somebody else's Python means the CPU: a function mode, and stubs of ``torch.cuda``.

Both processes use it, each on its own: the judge for a contest's reference, the worker for the submission. Nothing is
timed under it. Imports the standard library and torch only.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from scoring.ipc import absent
from scoring.ipc.fp4 import scaled_mm

NAME = "CPU in place of a GPU"                 # what torch.cuda calls the device
_CUDA = re.compile(r"cuda(:\d+)?")
_TYPE = re.compile(r"torch\.cuda\.(\w*Tensor)")


class NeedsGpu(RuntimeError):
    """Code asked for something that only a GPU has; the message says what."""


def needs_gpu(error: BaseException) -> str:
    """``a GPU: …`` for an error that the want of one causes, else ""."""
    return f"a GPU: {error}" if isinstance(error, NeedsGpu) else absent.gpu(str(error))


class StandIn(TorchFunctionMode):
    """While it is entered, torch functions that are told ``cuda`` work on the CPU.

    ``used``: whether anything was told so. ``claims``: tensors say that they lie on ``cuda:<rank>``, for code that
    asserts it.
    """

    def __init__(self, claims: bool = False, rank: int = 0):
        super().__init__()
        self.claims, self.rank, self.used = claims, rank, False
        self.count = 1               # devices that there are said to be, where any are

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", "")
        options = dict(kwargs or {})
        if func is torch.device:
            return func(*args, **options)
        if name == "__get__":
            return self._attribute(func, args)
        if args and isinstance(args[0], torch.Tensor) and name in _METHODS:
            self.used = self.used or name != "cpu"
            return _METHODS[name](args[0], self.rank)
        leaves = name == "to" and any(_is_cpu(value) for value in (*args[1:], *options.values()))
        args = tuple(self._here(value) for value in args)
        options = {key: self._here(value) for key, value in options.items()}
        if options.pop("pin_memory", False):
            self.used = True
        result = scaled_mm(func, *args, **options) if name == "_scaled_mm" else func(*args, **options)
        return result.clone() if leaves and result is args[0] else result

    def _attribute(self, func: Any, args: tuple[Any, ...]) -> Any:
        name = getattr(getattr(func, "__self__", None), "__name__", "")
        if self.claims and name == "is_cuda":
            return True
        value = func(*args)
        if self.claims and name == "device" and value.type == "cpu":
            return torch.device("cuda", self.rank)
        return value

    def _here(self, value: Any) -> Any:
        """``value``, but the CPU for a device or a word that names a CUDA device."""
        if isinstance(value, torch.device) and value.type == "cuda":
            self._named(value.index or 0)
            return torch.device("cpu")
        if isinstance(value, str) and (_CUDA.fullmatch(value) or _TYPE.fullmatch(value)):
            self._named(int(value.partition(":")[2] or 0))
            return "cpu" if _CUDA.fullmatch(value) else value.replace("torch.cuda.", "torch.")
        return value


    def _named(self, index: int) -> None:
        """A device was named. Raises ``NeedsGpu`` for one more than there are."""
        self.used = True
        if self.claims and index >= self.count:
            raise NeedsGpu(f"it names cuda:{index}, and the task has {self.count}")


# A copy that leaves the GPU is one of its own. One that comes to it is taken for what is there already.
_METHODS: Mapping[str, Callable[[torch.Tensor, int], Any]] = {
    "cpu": lambda tensor, rank: tensor.clone(),
    "cuda": lambda tensor, rank: tensor,
    "pin_memory": lambda tensor, rank: tensor,
    "record_stream": lambda tensor, rank: None,
    "get_device": lambda tensor, rank: rank,
}


def _is_cpu(value: Any) -> bool:
    return (isinstance(value, str) and value == "cpu") or (isinstance(value, torch.device) and value.type == "cpu")


@contextlib.contextmanager
def stubs(
    mode: StandIn, count: int = 1, more: Mapping[Any, Mapping[str, Any]] | None = None,
) -> Iterator[None]:
    """``torch.cuda`` and what else no function mode reaches, replaced for as long as this is entered.

    ``count``: the devices there are said to be, where ``mode`` claims any. ``more``: by module, over ours.
    """
    mode.count = count
    replaced: list[tuple[Any, str, Any]] = []
    for module, names in (*_replacements(mode, count).items(), *(more or {}).items()):
        for name, value in names.items():
            replaced.append((module, name, getattr(module, name, None)))
            setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in reversed(replaced):
            setattr(module, name, value)


@contextlib.contextmanager
def standing_in(mode: StandIn) -> Iterator[None]:
    """``mode`` and its stubs, for one stretch of somebody else's code."""
    with stubs(mode), mode:
        yield


def _replacements(mode: StandIn, count: int) -> Mapping[Any, Mapping[str, Any]]:
    """New values by the module they belong to."""
    def graph(*_arguments: Any, **_options: Any) -> Any:
        raise NeedsGpu("a CUDA graph needs a GPU")

    # One function per name: torch's compiler wants to know each from the others.
    cuda: dict[str, Any] = {name: partial(_nothing, mode) for name in (
        "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats", "manual_seed", "manual_seed_all",
        "set_device", "init", "_lazy_init", "set_stream", "reset_accumulated_memory_stats")}
    cuda |= {name: partial(_zero, mode) for name in (
        "memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")}
    cuda |= {
        "Event": Event, "Stream": Stream, "current_stream": Stream, "default_stream": Stream, "stream": Entered,
        "device": Entered, "CUDAGraph": graph,
    }
    found: dict[Any, dict[str, Any]] = {torch.cuda: cuda, torch: {"Generator": Generator}}
    if mode.claims:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        properties = SimpleNamespace(
            name=NAME, major=0, minor=0, total_memory=memory, multi_processor_count=os.cpu_count() or 1, warp_size=32,
            gcnArchName="", max_threads_per_multi_processor=1, shared_memory_per_block=0, L2_cache_size=0)
        cuda |= {
            "is_available": lambda: True, "is_initialized": lambda: True, "device_count": lambda: count,
            "current_device": lambda: mode.rank, "get_device_name": lambda device=None: NAME,
            "get_device_capability": lambda device=None: (0, 0), "mem_get_info": lambda device=None: (memory, memory),
            "get_device_properties": lambda device=None: properties,
            "is_bf16_supported": lambda including_emulation=True: True,
        }
        found[torch] |= {"compile": uncompiled}
    return found


def _nothing(mode: StandIn, *_arguments: Any, **_options: Any) -> None:
    mode.used = True


def _zero(_mode: StandIn, *_arguments: Any, **_options: Any) -> int:
    return 0


def uncompiled(model: Any = None, **_options: Any) -> Any:
    """``torch.compile``, as a call or a decorator, that leaves its function as it is."""
    return model if model is not None else lambda function: function


class _OneKind(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(metaclass=_OneKind):
    """``torch.Generator`` of the CPU, whatever device it is asked for."""

    def __new__(cls, device: Any = "cpu") -> Any:
        with torch._C.DisableTorchFunction():
            return torch._C.Generator("cpu")


class Entered:
    """A context that changes nothing: ``torch.cuda.device(…)``, ``torch.cuda.stream(…)``."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        pass

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_exception: object) -> None:
        pass


class Stream(Entered):
    """A queue of work whose work is always done."""

    cuda_stream = 0
    device_index = 0

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        return True

    def wait_stream(self, other: Any) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""

    def record_event(self, event: Any = None) -> Any:
        return event or Event()


class Event(Stream):
    """An event. Times between two of them mean nothing here, and nothing reads them."""

    def record(self, stream: Any = None) -> None:
        """Nothing to mark."""

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, end: Any) -> float:
        return 1.0
