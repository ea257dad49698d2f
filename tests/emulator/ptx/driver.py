# SPDX-License-Identifier: MIT
"""PTX text on the emulated GPUs, through the driver API of the library."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backends.emulator import build
from tests.emulator.runtime import built

HEADER = ".version 8.8\n.target {target}\n.address_size 64\n"
Array = NDArray[Any]


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_uint64), ("value", ctypes.c_uint32 * 16))


class Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint32),
                ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint32))


class Refused(Exception):
    """What the library said; ``code`` is the CUDA error, ``findings`` what the checks found."""

    def __init__(self, code: int, message: str, findings: list[dict[str, Any]]):
        super().__init__(message)
        self.code, self.findings = code, findings


class Cuda:
    """The library, as one of its GPUs: ``L4``, ``H100`` or ``H200``."""

    def __init__(self) -> None:
        self.library = library = ctypes.CDLL(str(built(lambda: build.cuda_library(13))))
        for name in ("findings", "counters", "message"):
            getattr(library, f"warpwave_emulator_take_{name}").restype = ctypes.c_void_p
        library.warpwave_emulator_free.argtypes = [ctypes.c_void_p]
        library.warpwave_emulator_register.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
        library.warpwave_emulator_unregister.argtypes = [ctypes.c_void_p]

    def set(self, **options: object) -> None:
        for name, value in options.items():
            assert self.library.warpwave_emulator_set(name.encode(), str(value).encode()) == 0

    def attribute(self, number: int) -> int:
        """A cudaDeviceAttr."""
        value = ctypes.c_int()
        self._check(self.library.cudaDeviceGetAttribute(ctypes.byref(value), number, 0))
        return value.value

    @contextmanager
    def memory(self, arrays: Mapping[str, tuple[int, int]]) -> Iterator[None]:
        """Within: (address, bytes) are known memory under their names."""
        for name, (address, size) in arrays.items():
            self.library.warpwave_emulator_register(address, size, name.encode())
        try:
            yield
        finally:
            for address, _size in arrays.values():
                self.library.warpwave_emulator_unregister(address)

    def tensor_map(
        self, base: int, kind: int, dims: Sequence[int], strides: Sequence[int], box: Sequence[int], swizzle: int = 0,
    ) -> Array:
        """128 bytes that start at a multiple of 64. ``kind``: CUtensorMapDataType; ``swizzle``: CUtensorMapSwizzle."""
        whole = np.zeros(192, np.uint8)
        at, rank = -whole.ctypes.data % 64, len(dims)
        numbers = ((ctypes.c_uint64 * rank)(*dims), (ctypes.c_uint64 * (rank - 1))(*strides),
                   (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*[1] * rank))
        assert self.library.cuTensorMapEncodeTiled(
            ctypes.c_void_p(whole.ctypes.data + at), kind, rank, ctypes.c_void_p(base), *numbers, 0, swizzle, 0, 0) == 0
        return whole[at:at + 128]

    def taken(self, what: str) -> str:
        pointer = getattr(self.library, f"warpwave_emulator_take_{what}")()
        try:
            return ctypes.string_at(pointer).decode()
        finally:
            self.library.warpwave_emulator_free(pointer)

    @contextmanager
    def known(self, array: Array) -> Iterator[None]:
        """Within: the array is memory that kernels may access."""
        self.library.warpwave_emulator_register(array.ctypes.data, array.nbytes, b"an array")
        try:
            yield
        finally:
            self.library.warpwave_emulator_unregister(array.ctypes.data)

    def launch(
        self, text: str, arguments: Sequence[Array | int], *, grid: int = 1, block: int = 32, shared: int = 0,
        target: str = "sm_90a", name: str = "k", early: bool = False,
    ) -> None:
        """One launch of kernel ``name`` of PTX ``text``, whose header is added. Arrays are known memory; integers are
        .u32. ``early``: it may begin before the launch before it has ended. Raises ``Refused``."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check(self.library.cuModuleLoadData(
            ctypes.byref(module), (HEADER.format(target=target) + text).encode()))
        try:
            self._check(self.library.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
            values: list[Any] = []
            for each in arguments:
                if isinstance(each, np.ndarray):
                    self.library.warpwave_emulator_register(each.ctypes.data, each.nbytes, b"an array")
                    values.append(ctypes.c_uint64(each.ctypes.data))
                else:
                    values.append(ctypes.c_uint32(each))
            pointers = (ctypes.c_void_p * max(1, len(values)))(
                *(ctypes.cast(ctypes.byref(value), ctypes.c_void_p) for value in values))
            programmatic = Attribute(6, (ctypes.c_uint32 * 16)(1))
            config = Config((grid, 1, 1), (block, 1, 1), shared, None, ctypes.pointer(programmatic), int(early))
            code = self.library.cuLaunchKernelEx(ctypes.byref(config), function, pointers, None)
            for each in arguments:
                if isinstance(each, np.ndarray):
                    self.library.warpwave_emulator_unregister(each.ctypes.data)
            self._check(code)
        finally:
            self.library.cuModuleUnload(module)

    def _check(self, code: int) -> None:
        if code:
            raise Refused(code, self.taken("message"), json.loads(self.taken("findings")))
