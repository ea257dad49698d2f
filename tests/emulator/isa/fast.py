# SPDX-License-Identifier: MIT
"""The arithmetic of ``floats.py`` on arrays of encodings (uint64), with NumPy where it rounds as wanted.

NumPy serves round-to-nearest without flushing for f16, f32 and f64; all else goes element by element through
``floats.py``. NaN results are always those of ``floats.quieted``, since NumPy's depend on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.emulator.isa import floats
from tests.emulator.isa.floats import BF16, F16, F32, F64, NEAREST, Format

Array = np.ndarray[Any, Any]
_HOST = {"f16": (np.uint16, np.float16), "f32": (np.uint32, np.float32), "f64": (np.uint64, np.float64)}


def numbers(fmt: Format, bits: Array) -> Array:
    """As NumPy floats of the same width; bf16 as float32."""
    if fmt is BF16:
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    unsigned, floating = _HOST[fmt.name]
    return bits.astype(unsigned).view(floating)


def encodings(fmt: Format, values: Array) -> Array:
    unsigned, floating = _HOST[fmt.name]
    with np.errstate(all="ignore"):
        return np.atleast_1d(values).astype(floating).view(unsigned).astype(np.uint64)


def each(function: Callable[..., int], *arrays: Array) -> Array:
    """``function`` on Python integers, element by element, with broadcasting."""
    rows = np.broadcast_arrays(*arrays)
    result = [function(*map(int, row)) for row in zip(*rows, strict=True)]
    return np.array(result, dtype=np.uint64)


def is_nan(fmt: Format, bits: Array) -> Array:
    if fmt.fnuz:
        return bits == np.uint64(fmt.nan)
    return (bits & np.uint64(fmt.sign - 1)) > np.uint64(fmt.inf)


def flushed(fmt: Format, bits: Array) -> Array:
    """Denormals as zeros of their sign."""
    return np.where((bits & np.uint64(fmt.inf)) == 0, bits & np.uint64(fmt.sign), bits)


def _nans(fmt: Format, result: Array, *operands: Array) -> Array:
    wrong = is_nan(fmt, result)
    if wrong.any():
        rows = np.broadcast_arrays(result, *operands)
        result = rows[0].copy()
        for i in np.flatnonzero(wrong):
            result[i] = floats.quieted(fmt, [int(row[i]) for row in rows[1:]])
    return result


def _wide(fmt: Format, *arrays: Array) -> list[Array]:
    return [numbers(fmt, a).astype(np.float64) for a in arrays]


def _hosted(fmt: Format, mode: int, flush: bool) -> bool:
    return mode == NEAREST and not flush and fmt.name in _HOST


def add(fmt: Format, a: Array, b: Array, mode: int = NEAREST, flush: bool = False) -> Array:
    if not _hosted(fmt, mode, flush):
        return each(lambda x, y: floats.add(fmt, x, y, mode, flush), a, b)
    with np.errstate(all="ignore"):
        # A sum of two f16 is exact in f64.
        x, y = _wide(fmt, a, b) if fmt is F16 else (numbers(fmt, a), numbers(fmt, b))
        return _nans(fmt, encodings(fmt, x + y), a, b)


def multiply(fmt: Format, a: Array, b: Array, mode: int = NEAREST, flush: bool = False) -> Array:
    if not _hosted(fmt, mode, flush):
        return each(lambda x, y: floats.multiply(fmt, x, y, mode, flush), a, b)
    with np.errstate(all="ignore"):
        x, y = (numbers(fmt, a), numbers(fmt, b)) if fmt is F64 else _wide(fmt, a, b)
        return _nans(fmt, encodings(fmt, x * y), a, b)


def divide(fmt: Format, a: Array, b: Array, mode: int = NEAREST, flush: bool = False) -> Array:
    if not _hosted(fmt, mode, flush) or fmt is F16:
        return each(lambda x, y: floats.divide(fmt, x, y, mode, flush), a, b)
    with np.errstate(all="ignore"):
        return _nans(fmt, encodings(fmt, numbers(fmt, a) / numbers(fmt, b)), a, b)


def sqrt(fmt: Format, a: Array, mode: int = NEAREST, flush: bool = False) -> Array:
    if not _hosted(fmt, mode, flush) or fmt is F16:
        return each(lambda x: floats.sqrt(fmt, x, mode, flush), a)
    with np.errstate(all="ignore"):
        return _nans(fmt, encodings(fmt, np.sqrt(numbers(fmt, a))), a)


def fma(fmt: Format, a: Array, b: Array, c: Array, mode: int = NEAREST, flush: bool = False) -> Array:
    if not _hosted(fmt, mode, flush) or fmt is F64:
        return each(lambda x, y, z: floats.fma(fmt, x, y, z, mode, flush), a, b, c)
    with np.errstate(all="ignore"):
        x, y, z = _wide(fmt, a, b, c)
        product = x * y                       # exact: at most 48 bits
        total = product + z
        # What the sum lost, by Knuth; then round the sum to odd, so that rounding it again is harmless.
        virtual = total - product
        lost = (product - (total - virtual)) + (z - virtual)
        bits = total.view(np.uint64)
        inexact = np.isfinite(total) & (lost != 0) & ((bits & np.uint64(1)) == 0)
        away = (lost > 0) == (total > 0)
        odd = np.where(away, bits + np.uint64(1), bits - np.uint64(1)).view(np.float64)
        return _nans(fmt, encodings(fmt, np.where(inexact, odd, total)), a, b, c)


def convert(source: Format, target: Format, bits: Array, mode: int = NEAREST, flush: bool = False,
            saturate: bool = False, quiet: bool = True) -> Array:
    if source is target:
        return bits
    if _hosted(target, mode, flush) and (source.name in _HOST or source is BF16):
        with np.errstate(all="ignore"):
            result = encodings(target, numbers(source, bits))
        nan = is_nan(source, bits)
        for i in np.flatnonzero(nan):
            result[i] = floats.convert(source, target, int(bits[i]), quiet=quiet)
        return result
    return each(lambda x: floats.convert(source, target, x, mode, flush, saturate, quiet), bits)


def from_integers(fmt: Format, values: list[int], mode: int = NEAREST) -> Array:
    return np.array([floats.from_integer(fmt, v, mode) for v in values], dtype=np.uint64)


def to_integers(fmt: Format, bits: Array, low: int, high: int, mode: int = floats.ZERO) -> list[int]:
    return [floats.to_integer(fmt, int(b), low, high, mode) for b in bits]


def rounded(fmt: Format, bits: Array, function: Callable[[Array], Array]) -> Array:
    """``function`` (floor, ceil, trunc, rint) of every number; exact in any format."""
    with np.errstate(all="ignore"):
        return _nans(fmt, encodings(fmt, function(numbers(fmt, bits))), bits)


__all__ = ["BF16", "F16", "F32", "F64", "add", "convert", "divide", "each", "encodings", "flushed", "fma",
           "from_integers", "is_nan", "multiply", "numbers", "rounded", "sqrt", "to_integers"]
