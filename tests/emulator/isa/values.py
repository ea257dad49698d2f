# SPDX-License-Identifier: MIT
"""Typed values of the pseudo-code, one element per lane.

A value is bits: ``uint64`` up to 64 bits wide, Python integers beyond. Kinds: ``U``, ``I`` integers, ``B`` raw bits,
``F``, ``BF``, ``FP8``, ``BF8`` floats. An array of length 1 is the same for all lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FLOATS = frozenset({"F", "BF", "FP8", "BF8"})


@dataclass(slots=True)
class Value:
    kind: str
    width: int
    bits: Array

    @property
    def floating(self) -> bool:
        return self.kind in FLOATS


@dataclass(slots=True)
class Vector:
    """A declared array, such as ``32'F[3]``."""

    elements: list[Value]


def mask(width: int) -> int:
    return (1 << width) - 1


def array(bits: Any, width: int) -> Array:
    """``bits`` cut to ``width``, in the array type of that width."""
    found = np.atleast_1d(np.asarray(bits))
    if width > 64:
        return found.astype(object) & mask(width)
    if found.dtype == object:
        return (found & mask(width)).astype(np.uint64)
    found = found.astype(np.uint64)
    return found if width == 64 else found & np.uint64(mask(width))


def value(kind: str, width: int, bits: Any) -> Value:
    return Value(kind, width, array(bits, width))


def constant(kind: str, width: int, number: int) -> Value:
    number &= mask(width)
    return Value(kind, width, np.array([number], dtype=object if width > 64 else np.uint64))


def flag(condition: Array) -> Value:
    return Value("U", 1, np.atleast_1d(condition).astype(np.uint64))


def integers(v: Value) -> Array:
    """Signed or unsigned integers as Python numbers (an object array)."""
    bits = v.bits.astype(object)
    if v.kind == "I":
        top = 1 << (v.width - 1)
        return (bits ^ top) - top
    return bits


def extended(v: Value, width: int) -> Array:
    """The bits at another width: sign-extended when signed."""
    if width <= v.width or v.kind != "I":
        return array(v.bits, width)
    if width > 64:
        return array(integers(v), width)
    top = np.uint64(1 << (v.width - 1))
    with np.errstate(over="ignore"):
        return array((v.bits ^ top) - top, width)


def signed64(v: Value) -> Array:
    """Two's complement in 64 bits, for comparisons of anything up to 64 bits wide."""
    return extended(v, 64).view(np.int64)


def scalar(v: Value) -> int:
    """The number, where it must be the same for all lanes."""
    numbers = integers(v)
    if len(numbers) > 1 and (numbers != numbers[0]).any():
        raise ValueError("a value that should be the same in all lanes is not")
    return int(numbers[0])


def where(condition: Array, yes: Array, no: Array) -> Array:
    if yes.dtype == object or no.dtype == object:
        yes, no = yes.astype(object), no.astype(object)
    return np.where(condition, yes, no)


def put(old: Array, width: int, start: int, count: int, bits: Array) -> Array:
    """``old`` with ``count`` bits from ``start`` replaced."""
    hole = mask(width) ^ (mask(count) << start)
    if width > 64:
        return (old.astype(object) & hole) | (array(bits, count).astype(object) << start)
    return (array(old, width) & np.uint64(hole)) | (array(bits, count) << np.uint64(start))


def concatenate(parts: Sequence[Value]) -> Value:
    """The first is the most significant."""
    width = sum(p.width for p in parts)
    bits: Array = np.zeros(1, dtype=object if width > 64 else np.uint64)
    for p in parts:
        bits = bits << p.width | p.bits.astype(object) if width > 64 else bits << np.uint64(p.width) | p.bits
    return Value("B", width, bits)
