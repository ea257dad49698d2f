# SPDX-License-Identifier: MIT
"""Formats of buffer data: components in memory to registers and back.

Source: "AMD Instinct MI300" ISA reference, tables of buffer data and number formats. Names give the fields from the
highest bits down.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.emulator.isa import fast, floats
from tests.emulator.isa.values import Array

UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT = 0, 1, 2, 3, 4, 5, 7
LAYOUTS: dict[int, tuple[int, ...]] = {          # bits of X, Y, Z, W
    1: (8,), 2: (16,), 3: (8, 8), 4: (32,), 5: (16, 16), 6: (11, 11, 10), 7: (10, 11, 11), 8: (2, 10, 10, 10),
    9: (10, 10, 10, 2), 10: (8, 8, 8, 8), 11: (32, 32), 12: (16, 16, 16, 16), 13: (32, 32, 32), 14: (32, 32, 32, 32),
}


def size(data_format: int) -> int:
    return sum(LAYOUTS[data_format]) // 8


def has(data_format: int, number_format: int, half: bool, storing: bool) -> bool:
    """Whether the combination means something that is documented to the last bit."""
    widest = max(LAYOUTS[data_format])
    if number_format == FLOAT:
        return widest in (16, 32) or (widest == 11 and not storing)
    if widest == 32:
        return number_format in (UINT, SINT) and not half
    return not (storing and number_format in (USCALED, SSCALED))


def components(raw: Sequence[int], data_format: int) -> list[Array]:
    """The fields of 64 elements, lowest bits first."""
    found, at = [], 0
    for bits in LAYOUTS[data_format]:
        found.append(np.array([element >> at & ((1 << bits) - 1) for element in raw], dtype=np.uint64))
        at += bits
    return found


def signed(raw: Array, bits: int) -> Array:
    return (raw.astype(np.int64) ^ (1 << (bits - 1))) - (1 << (bits - 1))


def one(number_format: int, half: bool) -> int:
    if number_format in (UINT, SINT):
        return 1
    return 0x3C00 if half else 0x3F800000


def loaded(raw: Array, bits: int, number_format: int, half: bool) -> Array:
    """What a register gets, 16 bits of it with ``half``."""
    if number_format == UINT:
        return raw
    if number_format == SINT:
        return (signed(raw, bits) & (0xFFFF if half else 0xFFFFFFFF)).astype(np.uint64)
    if number_format == FLOAT:
        if bits == 32:
            return fast.convert(floats.F32, floats.F16, raw) if half else raw
        wide = raw << np.uint64(15 - bits) if bits < 16 else raw
        return wide if half else fast.convert(floats.F16, floats.F32, wide)
    if number_format == UNORM:
        exact = raw.astype(np.float64) / ((1 << bits) - 1)
    elif number_format == SNORM:
        exact = np.maximum(signed(raw, bits) / ((1 << (bits - 1)) - 1), -1.0)
    else:
        exact = (signed(raw, bits) if number_format == SSCALED else raw).astype(np.float64)
    if half:
        with np.errstate(over="ignore"):
            return exact.astype(np.float16).view(np.uint16).astype(np.uint64)
    return exact.astype(np.float32).view(np.uint32).astype(np.uint64)


def stored(value: Array, bits: int, number_format: int, half: bool) -> Array:
    """The component's bits; ``value`` is a register's, 16 bits with ``half``."""
    top = (1 << bits) - 1
    if number_format == UINT:
        return np.minimum(value, np.uint64(top))
    if number_format == SINT:
        return (np.clip(signed(value, 16 if half else 32), -(top >> 1) - 1, top >> 1) & top).astype(np.uint64)
    source, target = floats.F16 if half else floats.F32, floats.F16 if bits == 16 else floats.F32
    if number_format == FLOAT:
        return value if source is target else fast.convert(source, target, value)
    with np.errstate(all="ignore"):
        numbers = np.nan_to_num(fast.numbers(source, value).astype(np.float64), nan=0.0, posinf=1.0, neginf=-1.0)
    whole = top if number_format == UNORM else top >> 1
    scaled = np.rint(np.clip(numbers, 0.0 if number_format == UNORM else -1.0, 1.0) * whole).astype(np.int64)
    return (scaled & top).astype(np.uint64)
