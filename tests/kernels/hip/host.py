# SPDX-License-Identifier: MIT
"""Run a HIP kernel file on the host, unchanged, through the SIMT shim of this folder.

The shim checks the logic of a kernel against the documented operand layouts: indices, masks, barriers, reductions. It
says nothing about the silicon, registers or speed.
"""

from __future__ import annotations

import ctypes
import mmap
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
SHIM = Path(__file__).parent / "shim"
ORDERS = (0, 1, 20261120)      # waves forward, backward, pseudo-random
CANARY = 0xA5

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def compiler() -> list[str] | None:
    """A C++17 compiler for this machine, or None.

    Libraries made by g++ share inline statics with one another by default; here each must have its own machine and LDS.
    """
    if path := shutil.which("g++"):
        return [path, "-fno-gnu-unique"]
    if path := shutil.which("clang++"):
        return [path]
    return [sys.executable, "-m", "ziglang", "c++"] if find_spec("ziglang") else None


def build(problem: str, out: Path, defines: Mapping[str, int | str] | None = None, variant: str = "mfma") -> Path:
    """Compile kernels/hip/<problem>/<variant>.hip as host C++ into ``out``.

    Raises ``RuntimeError`` with the compiler's messages.
    """
    return build_file(ROOT / f"kernels/hip/{problem}/{variant}.hip", problem, out, defines)


def build_file(source: Path, problem: str, out: Path, defines: Mapping[str, int | str] | None = None) -> Path:
    """Compile ``source``, which may include the headers of kernels/hip and kernel.h of ``problem``."""
    driver = compiler()
    assert driver is not None
    folders = (SHIM, ROOT / "problems" / problem, ROOT / "kernels/hip", ROOT / "kernels/common")
    command = [
        *driver, "-std=c++17", "-O1", "-fPIC", "-shared", "-U_FORTIFY_SOURCE", "-Wall", "-Wextra", "-Werror",
        "-Wno-psabi", "-Wno-unknown-pragmas",
        *(f"-D{name}={value}" for name, value in (defines or {}).items()),
        *(f"-I{folder}" for folder in folders), "-x", "c++", str(source), "-o", str(out),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(result.stderr[-4000:])
    return out


class Guarded:
    """An array that ends right before an unmapped page and begins after one; the slack in between is watched.

    An access beyond the array either faults (and becomes the launch's error) or, within 16 bytes of its end or in the
    slack before it, breaks a canary. Reading the slack gives ``0xA5`` bytes.
    """

    def __init__(self, array: np.ndarray):
        data = np.ascontiguousarray(array)
        page = mmap.PAGESIZE
        tail = -data.nbytes % 16                                   # operands are 16-byte aligned
        body = -(-max(data.nbytes, 1) // page) * page
        self._size = body + 2 * page
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._base = _libc.mmap(None, self._size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        assert self._base not in (None, ctypes.c_void_p(-1).value)
        for edge in (self._base, self._base + page + body):
            assert _libc.mprotect(edge, page, 0) == 0
        self._body = np.frombuffer((ctypes.c_uint8 * body).from_address(self._base + page), dtype=np.uint8)
        self._body[:] = CANARY
        self._first = body - tail - data.nbytes
        self._end = self._first + data.nbytes
        self.address = self._base + page + self._first
        self._body[self._first : self._end] = data.reshape(-1).view(np.uint8)
        self.array = self._body[self._first : self._end].view(data.dtype).reshape(data.shape)

    def intact(self) -> bool:
        """Whether nothing was written outside the array."""
        return bool((self._body[: self._first] == CANARY).all() and (self._body[self._end :] == CANARY).all())

    def __del__(self) -> None:
        if getattr(self, "_base", None):
            _libc.munmap(self._base, self._size)


@dataclass(frozen=True)
class Size:
    """A size_t argument."""

    value: int


class HostKernel:
    """One entry point of a library made by ``build``."""

    def __init__(self, library: Path, symbol: str):
        self._library = ctypes.CDLL(str(library))
        self._function = getattr(self._library, symbol)
        self._library.simt_message.restype = ctypes.c_char_p

    def __call__(
        self, *arguments: Guarded | int | float | Size | None, order: int = 0, poison: int = 0xFF
    ) -> int:
        """Call it. ``order``: one of ``ORDERS``; ``poison``: the byte that fills LDS. Returns its status.

        Raises ``AssertionError`` when the shim reports a failure, or when an operand's surroundings were written to.
        """
        self._library.simt_order(order)
        self._library.simt_poison(poison)
        status = int(self._function(*[_to_c(argument) for argument in arguments]))
        assert status <= 0, self._library.simt_message().decode()
        for place, argument in enumerate(arguments):
            if isinstance(argument, Guarded):
                assert argument.intact(), f"argument {place}: written outside the array"
        return status


def _to_c(value: Guarded | int | float | Size | None) -> object:
    if isinstance(value, Guarded):
        return ctypes.c_void_p(value.address)
    if isinstance(value, Size):
        return ctypes.c_size_t(value.value)
    if isinstance(value, float):
        return ctypes.c_float(value)
    return ctypes.c_void_p(None) if value is None else ctypes.c_int(value)


def bf16(values: np.ndarray) -> np.ndarray:
    """Bit patterns of ``values`` rounded to bf16 (nearest even), uint16. No NaN in, none out."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def fp8_fnuz_values() -> np.ndarray:
    """The 256 values of e4m3fnuz by bit pattern; NaN at 0x80."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    magnitude = np.where(exponent == 0, mantissa * 2.0**-10, (8 + mantissa) * 2.0 ** (exponent - 11.0))
    values = np.where(codes & 0x80, -magnitude, magnitude)
    values[0x80] = np.nan
    return values


def random_fp8(rng: np.random.Generator, shape: Sequence[int]) -> np.ndarray:
    """Standard normal values as e4m3fnuz bit patterns (nearest)."""
    values = fp8_fnuz_values()
    order = np.argsort(values)[:255]      # NaN sorts last
    grid = values[order]
    places = np.searchsorted((grid[1:] + grid[:-1]) / 2, rng.standard_normal(tuple(shape)))
    return order[places].astype(np.uint8)
