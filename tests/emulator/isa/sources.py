# SPDX-License-Identifier: MIT
"""Operands for generated instructions: numbers that are hard, and the places that an instruction may read."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from tests.emulator.isa import fast, floats
from tests.emulator.isa.floats import BF16, F16, F32, F64, Format
from tests.emulator.isa.opcodes import Operand
from tests.emulator.isa.values import Array
from tests.emulator.isa.wave import M0, VCC, Wave

_FORMATS = {"F16": F16, "F32": F32, "F64": F64, "BF16": BF16}
INLINE = {"0.5": 0.5, "-0.5": -0.5, "1.0": 1.0, "-1.0": -1.0, "2.0": 2.0, "-2.0": -2.0, "4.0": 4.0, "-4.0": -4.0}


@functools.cache
def float_edges(fmt: Format) -> tuple[int, ...]:
    one = fmt.bias << fmt.mbits
    # Half of the last place of 1, and what rounds to even or away from it.
    tie = (fmt.bias - fmt.mbits - 1) << fmt.mbits if fmt.mbits < fmt.bias else 1
    positive = [0, 1, 2, (1 << fmt.mbits) - 1, 1 << fmt.mbits, one, one + 1, one - 1, one + (1 << (fmt.mbits - 1)),
                tie, tie + 1, tie - 1, fmt.largest, fmt.largest - 1, fmt.inf, fmt.nan, fmt.nan | 3, fmt.inf | 1]
    numbers = [0.5, 1.5, 2.5, 3.5, 255.0, 256.0, 0.49999997, 32767.5, 65535.0, 65536.0, 2147483648.0, 4294967296.0,
               240.0, 57344.0, 1 / 3, 1024.0]
    with np.errstate(over="ignore"):
        positive += [int(fast.convert(F64, fmt, fast.encodings(F64, np.array([x])))[0]) for x in numbers]
    return tuple(positive) + tuple(p | fmt.sign for p in positive)


def integer_edges(width: int) -> tuple[int, ...]:
    top = 1 << (width - 1)
    return (0, 1, 2, 3, 7, 15, 16, 31, 32, 33, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, 0x55555555,
            0x8000, 0x7FFF, 0xFFFF, 0x800000, 0x7FFFFF)


def hard_numbers(rng: np.random.Generator, kind: str, width: int, count: int = 64) -> Array:
    """``count`` encodings: edges and random bits, for floats also numbers of like size (so that sums round)."""
    if kind.startswith("PK") or (kind in ("B32", "B64") and width == 64):
        parts = {"F16": 16, "I16": 16, "U16": 16, "BF16": 16, "F32": 32, "B32": 32}
        element = kind.split("_")[-1]
        size = parts.get(element, 0)
        if size and width > size:
            pieces = [hard_numbers(rng, element, size, count) << np.uint64(size * i) for i in range(width // size)]
            return np.bitwise_or.reduce(np.array(pieces, dtype=np.uint64))
    bits = rng.integers(0, 1 << 32, count, dtype=np.uint64) | rng.integers(0, 1 << 32, count, dtype=np.uint64) << \
        np.uint64(32)
    fmt = _FORMATS.get(kind)
    pick = rng.random(count)
    if fmt:
        exponents = rng.integers(max(1, fmt.bias - 4), fmt.bias + 5, count, dtype=np.uint64)
        near = exponents << np.uint64(fmt.mbits) | bits & np.uint64((1 << fmt.mbits) - 1) | bits & np.uint64(fmt.sign)
        bits = np.where(pick < 0.4, near, bits)
        edges = float_edges(fmt)
    else:
        # Small numbers make shifts and comparisons meet.
        bits = np.where(pick < 0.2, bits & np.uint64(63), bits)
        edges = integer_edges(width)
    chosen = np.array([edges[i] for i in rng.integers(0, len(edges), count)], dtype=np.uint64)
    bits = np.where(pick > 0.6, chosen, bits)
    return bits & np.uint64((1 << width) - 1) if width < 64 else bits


@dataclass
class Source:
    """``text`` as the assembler reads it; ``bits`` [64] as the instruction does, before modifiers."""

    text: str
    bits: Array


def register_bits(rng: np.random.Generator, operand: Operand) -> Array:
    """Hard numbers with what else a register may hold above a short operand."""
    if operand.width > 64:
        words = rng.integers(0, 1 << 32, (operand.width // 32, 64), dtype=np.uint64).astype(object)
        return sum(word << (32 * i) for i, word in enumerate(words))
    bits = hard_numbers(rng, operand.kind, operand.width)
    if operand.width < 32:
        bits |= rng.integers(0, 1 << (32 - operand.width), 64, dtype=np.uint64) << np.uint64(operand.width)
    return bits


def vgpr(wave: Wave, at: int, bits: Array, width: int) -> Source:
    """Puts ``bits`` into registers from ``at``."""
    registers = max(1, -(-width // 32))
    numbers = bits.astype(object)
    for i in range(registers):
        wave.vgprs[at + i] = ((numbers >> (32 * i)) & 0xFFFFFFFF).astype(np.uint32)
    return Source(register_text("v", at, registers), bits)


def register_text(letter: str, at: int, registers: int) -> str:
    return f"{letter}{at}" if registers == 1 else f"{letter}[{at}:{at + registers - 1}]"


def sgpr(wave: Wave, at: int, bits: int, width: int) -> Source:
    wave.set_scalar(at, width, bits)
    registers = max(1, -(-width // 32))
    text = {VCC: "vcc" if registers == 2 else "vcc_lo", M0: "m0"}.get(at, register_text("s", at, registers))
    return Source(text, splat(bits))


def splat(bits: int) -> Array:
    return np.full(64, bits, dtype=object if bits >> 64 else np.uint64)


def inline(rng: np.random.Generator, operand: Operand) -> Source | None:
    """An inline constant, where what it means is not in doubt."""
    fmt = _FORMATS.get(operand.kind)
    if fmt and rng.random() < 0.7:
        text = str(rng.choice(list(INLINE)))
        return Source(text, splat(int(fast.encodings(fmt, np.array([INLINE[text]]))[0])))
    if operand.kind.startswith("PK") or operand.width not in (16, 32, 64):
        return None
    number = int(rng.integers(-16, 65))
    return Source(str(number), splat(number & ((1 << operand.width) - 1)))


def literal(rng: np.random.Generator, operand: Operand) -> Source | None:
    """A 32-bit literal; for 64-bit floats the high half of the number."""
    fmt = _FORMATS.get(operand.kind)
    if operand.width == 64 and fmt is F64:
        high = floats.convert(F32, F64, int(hard_numbers(rng, "F32", 32, 1)[0])) >> 32
        return Source(f"0x{high | 0x01000000:08x}", splat((high | 0x01000000) << 32))
    if operand.width not in (16, 32) or operand.kind.startswith("PK"):
        return None
    bits = int(hard_numbers(rng, operand.kind, operand.width, 1)[0])
    bits |= 0x4321 if operand.width == 16 else 0x43210000     # never an inline constant
    return Source(f"0x{bits:x}", splat(bits))


def negated(fmt_name: str, bits: Array, neg: bool, absolute: bool) -> Array:
    """Source modifiers of a float operand: abs, then neg."""
    fmt = _FORMATS[fmt_name.upper()]
    if absolute:
        bits = bits & ~np.uint64(fmt.sign)
    return bits ^ np.uint64(fmt.sign) if neg else bits


__all__ = ["INLINE", "Source", "float_edges", "hard_numbers", "inline", "literal", "negated", "register_bits",
           "register_text", "sgpr", "splat", "vgpr"]
