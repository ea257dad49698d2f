# SPDX-License-Identifier: MIT
"""Memory that the judge owns and the worker maps: one block of bytes per slot.

Two kinds. A *host* arena is a memfd handed over as a file descriptor: CPU kernels and emulated devices, whose device
pointers are host pointers, work in it directly. A *device* arena is device memory handed over the same way
(``ipc.device_memory``). Either way the bytes are the judge's: it fills the inputs, poisons the outputs and reads
the answers without asking the worker for anything.

Imports the standard library and torch only, as both processes use it; a worker without Python code or a GPU gets by
without torch (``worker.lean``).
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import mmap
import os
from dataclasses import dataclass
from typing import Any

import torch

from scoring.ipc.device_memory import DeviceMemoryError, SharedBlock

ALIGNMENT = 1024        # bytes: every tensor starts so aligned, as a plain device allocation would
_HOST_ALIGNMENT = 64    # bytes: of what torch allocates on a host


class ArenaError(Exception):
    """The memory could not be allocated, exported or mapped."""


@dataclass(frozen=True)
class TensorSpec:
    """Where a tensor lies in an arena: ``offset`` in bytes, ``strides`` in elements, dtype by torch's name."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return extent(self.shape, self.strides) * dtype_of(self.dtype).itemsize

    def view(self, block: torch.Tensor) -> torch.Tensor:
        """This tensor as a view of ``block`` (uint8, one dimension).

        Raises ``ArenaError`` if it does not fit.
        """
        if self.offset < 0 or self.offset + self.nbytes > block.numel():
            raise ArenaError(f"tensor {self.name} does not fit into its arena")
        raw = block[self.offset : self.offset + self.nbytes].view(dtype_of(self.dtype))
        return raw.as_strided(self.shape, self.strides)


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last one a strided tensor touches; 0 for an empty one."""
    if any(size == 0 for size in shape):
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def dtype_of(name: str) -> torch.dtype:
    """torch's dtype called ``name``.

    Raises ``ArenaError`` for any other name.
    """
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ArenaError(f"unknown dtype {name!r}")
    return dtype


class Memory:
    """Bytes by address: of a tensor what native code and the chain ask for, by the same names, and no torch.

    ``width``: bytes of an element. ``owner`` is what keeps the bytes, where that is nobody else's task.
    """

    def __init__(self, address: int, nbytes: int, width: int = 1, owner: object = None):
        self._address, self._nbytes, self._width, self._owner = address, nbytes, width, owner

    @classmethod
    def zeros(cls, nbytes: int) -> Memory:
        """Zeroed bytes of the host, aligned as torch's."""
        owner = ctypes.create_string_buffer(nbytes + _HOST_ALIGNMENT)
        return cls(-(-ctypes.addressof(owner) // _HOST_ALIGNMENT) * _HOST_ALIGNMENT, nbytes, owner=owner)

    def data_ptr(self) -> int:
        return self._address

    def numel(self) -> int:
        return self._nbytes // self._width

    def element_size(self) -> int:
        return self._width

    def __getitem__(self, part: slice) -> Memory:
        """A part of it, in bytes."""
        begin, end, step = part.indices(self._nbytes)
        assert step == 1
        return Memory(self._address + begin, max(end - begin, 0), owner=self._owner)

    # Of the host alone:

    def zero_(self) -> None:
        ctypes.memset(self._address, 0, self._nbytes)

    def write(self, content: bytes) -> None:
        """Raises ``ValueError`` unless the content fits exactly."""
        if len(content) != self._nbytes:
            raise ValueError(f"{len(content)} bytes for {self._nbytes}")
        ctypes.memmove(self._address, content, self._nbytes)

    def clone(self) -> Memory:
        copy = Memory.zeros(self._nbytes)
        copy.write(ctypes.string_at(self._address, self._nbytes))
        return copy

    def tolist(self) -> list[int]:
        """The bytes as numbers."""
        return list(ctypes.string_at(self._address, self._nbytes))


class Arena:
    """A block of bytes that begins at ``address``; ``memory`` is what holds it, a tensor of a device or a mapping."""

    def __init__(
        self, memory: torch.Tensor | mmap.mmap, close: Any, export: dict[str, Any], fd: int | None = None
    ):
        self.export = export      # what the other process needs, but for the descriptor
        self.fd = fd
        self._memory, self._close = memory, close
        self._pin: Any = None     # a mapping stays in its place for as long as this lives
        if isinstance(memory, mmap.mmap):
            self._pin = ctypes.c_char.from_buffer(memory)
            self.address, self.nbytes = ctypes.addressof(self._pin), len(memory)
        else:
            self.address, self.nbytes = memory.data_ptr(), memory.numel()

    @functools.cached_property
    def block(self) -> torch.Tensor:
        """The bytes as a one-dimensional uint8 tensor."""
        memory = self._memory
        return torch.frombuffer(memory, dtype=torch.uint8) if isinstance(memory, mmap.mmap) else memory

    def part(self, begin: int, nbytes: int, width: int = 1) -> Memory:
        """Some of the bytes, for as long as the arena lasts; ``width``: bytes of an element. Raises ``ArenaError``."""
        if begin < 0 or nbytes < 0 or begin + nbytes > self.nbytes:
            raise ArenaError(f"what takes {nbytes} bytes from {begin} on does not fit into an arena of {self.nbytes}")
        return Memory(self.address + begin, nbytes, width)

    def close(self) -> None:
        """Give the memory back; views of it must be gone or unused. Safe to call twice."""
        close, self._close = self._close, None
        if close is not None:
            vars(self).pop("block", None)
            del self._memory, self._pin
            close()


def create_host(nbytes: int) -> Arena:
    """A zeroed host arena in a memfd, sealed so that the worker cannot shrink it under the judge (a SIGBUS there).

    Raises ``ArenaError`` when the system has no room.
    """
    fd = -1
    try:
        fd = os.memfd_create("warpwave", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, max(nbytes, 1))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        arena = _map_host(fd, nbytes)
    except (OSError, OverflowError, ArenaError) as error:
        if fd >= 0:
            os.close(fd)
        raise ArenaError(f"cannot allocate {nbytes} bytes of shared memory: {error}") from error
    arena.export = {"kind": "host", "nbytes": nbytes}
    return arena


def _map_host(fd: int, nbytes: int) -> Arena:
    try:
        mapping = mmap.mmap(fd, max(nbytes, 1))
    except (OSError, ValueError) as error:
        raise ArenaError(f"cannot map {nbytes} bytes of shared memory: {error}") from error

    def close() -> None:
        # The mapping goes with its last view; the descriptor need not wait for that.
        os.close(fd)

    return Arena(mapping, close, {}, fd)


class _Runtime:
    """The vendor's runtime that torch has loaded, by ctypes: it knows what error codes mean."""

    def __init__(self) -> None:
        if torch.version.hip:
            self.prefix = "hip"
            names = ["libamdhip64.so", f"libamdhip64.so.{torch.version.hip.split('.')[0]}"]
        else:
            self.prefix = "cuda"
            major = (torch.version.cuda or "0").split(".")[0]
            names = [f"libcudart.so.{major}", "libcudart.so"]
        for name in names:
            try:
                self.library = ctypes.CDLL(name)
                return
            except OSError:
                continue
        raise ArenaError(f"the device runtime was not found: tried {', '.join(names)}")

    def describe(self, code: int) -> str:
        function = getattr(self.library, self.prefix + "GetErrorString")
        function.restype = ctypes.c_char_p
        return str(function(code).decode())


def error_string(code: int) -> str:
    """The vendor's words for an error code a kernel returned."""
    return _Runtime().describe(code)


class DevicePointer:
    """A device allocation as torch adopts it: the array interface both vendors' builds of torch read."""

    def __init__(self, pointer: int, nbytes: int):
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (pointer, False), "version": 3, "strides": None,
        }


def create_device(nbytes: int, device: int) -> Arena:
    """A device arena on torch's device number ``device``.

    Raises ``ArenaError`` when the device has no room or cannot share memory.
    """
    try:
        with torch.cuda.device(device):
            torch.zeros(1, device="cuda")       # makes torch's primary context current in this thread
            shared, fd = SharedBlock.create(nbytes, device, bool(torch.version.hip))
    except DeviceMemoryError as error:
        raise ArenaError(f"cannot allocate {nbytes} bytes of shared device memory: {error}") from error
    return _device_arena(shared, fd, device)


def attach(export: dict[str, Any], fd: int | None, device: int) -> Arena:
    """Map the arena that another process described by ``export`` and ``fd``, which becomes this arena's.

    Raises ``ArenaError``.
    """
    if fd is None:
        raise ArenaError("an arena came without its descriptor")
    nbytes = int(export["nbytes"])
    if export["kind"] == "host":
        return _map_host(fd, nbytes)
    try:
        with torch.cuda.device(device):
            torch.zeros(1, device="cuda")
            shared = SharedBlock.open(nbytes, fd, device, bool(torch.version.hip))
    except DeviceMemoryError as error:
        os.close(fd)
        raise ArenaError(f"cannot map {nbytes} bytes of shared device memory: {error}") from error
    return _device_arena(shared, fd, device)


def _device_arena(shared: SharedBlock, fd: int, device: int) -> Arena:
    block = torch.as_tensor(DevicePointer(shared.pointer, shared.nbytes), device=f"cuda:{device}")

    def close() -> None:
        os.close(fd)
        with torch.cuda.device(device):
            torch.cuda.synchronize()
            shared.close()

    return Arena(block, close, {"kind": "device", "nbytes": shared.nbytes}, fd)
