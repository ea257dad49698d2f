# SPDX-License-Identifier: MIT
"""Runs HIP kernels of this repository on the emulated MI300X: compiled for gfx942, in this process, with all checks."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import backends
from backends.base import Binary
from backends.source import KernelSource, Param
from scoring.ipc.emulator import Emulator, explain

ROOT = Path(__file__).resolve().parents[3]
APART = 4096          # bytes on either side of an array that belong to none
OPTIONS = {"checks": "all", "strict": "1", "counters": "0", "threads": "0"}
DEFAULTS = {"checks": "none", "strict": "0"}      # what others in this process expect of the library
Argument = np.ndarray | int | float | None


@cache
def compiled(file: Path, problem: str, defines: tuple[tuple[str, int], ...] = ()) -> Binary:
    """``file`` for gfx942, which may include the headers of kernels/hip and kernel.h of ``problem``.

    Raises ``ToolchainMissing``.
    """
    backend = backends.get("rocm")
    return backend.compile(KernelSource.read(file, ROOT, problem), backend.target("MI300"), dict(defines))


class Kernel:
    """An entry point of a compiled kernel file. ``parameters``: the C type of each parameter by its name."""

    def __init__(self, emulator: Emulator, binary: Binary, symbol: str, parameters: Mapping[str, str]):
        self._emulator = emulator
        self._names = list(parameters)
        self._function = getattr(ctypes.CDLL(str(binary.path)), symbol)
        self._function.argtypes = [Param(name, ctype).binding for name, ctype in parameters.items()]

    def __call__(self, *arguments: Argument) -> int:
        """The status of a call, on which the checks found nothing; arrays hold what it wrote to them."""
        status, findings = self.launch(*arguments)
        assert not findings, explain(findings)
        return status

    def launch(self, *arguments: Argument) -> tuple[int, list[dict[str, Any]]]:
        """The status of a call, and what the checks found."""
        assert len(arguments) == len(self._names), f"the parameters are {', '.join(self._names)}"
        copies = {name: _apart(value) for name, value in zip(self._names, arguments, strict=True)
                  if isinstance(value, np.ndarray)}
        values = [copies[name].ctypes.data if name in copies else value
                  for name, value in zip(self._names, arguments, strict=True)]
        with self._emulator.memory([(name, copy.ctypes.data, copy.nbytes) for name, copy in copies.items()]):
            status = int(self._function(*values))
            findings = self._emulator.take_findings()
        for name, value in zip(self._names, arguments, strict=True):
            if isinstance(value, np.ndarray):
                value[...] = copies[name]
        return status, findings


def _apart(array: np.ndarray) -> np.ndarray:
    """A contiguous copy that begins at a multiple of 256 bytes and lies far from every other one."""
    room = np.zeros(array.nbytes + 2 * APART + 256, np.uint8)
    start = APART + -(room.ctypes.data + APART) % 256
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


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
