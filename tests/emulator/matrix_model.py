# SPDX-License-Identifier: MIT
"""What MI300's matrix instructions compute, in exact Python arithmetic, and where their operands' elements lie.

Nothing here is shared with the emulator. Arithmetic: the model that Xie, Wang, Yang and Yang found equal to an MI300X
(arXiv 2511.10909; github.com/microsoft/MMA-Sim). Layouts: as AMD's matrix instruction calculator prints them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

NAN = float("nan")
Number = Fraction | float           # a float is an infinity or a NaN


@dataclass(frozen=True)
class Format:
    """A floating-point format. ``nuz``: no infinities and no -0; its only NaN is where others have -0."""

    bits: int
    mantissa: int
    bias: int
    nuz: bool = False
    visible: int = 0                # mantissa bits that the matrix unit looks at, if fewer

    @property
    def smallest(self) -> int:
        return 1 - self.bias

    def decode(self, code: int) -> tuple[Number, int]:
        """The value and the exponent that products are aligned by."""
        sign, field = -1 if code >> (self.bits - 1) else 1, code >> self.mantissa & self.largest_field
        fraction = code & ((1 << self.mantissa) - 1)
        if self.nuz and code == 1 << (self.bits - 1):
            return NAN, 0
        if not self.nuz and field == self.largest_field:
            return (NAN if fraction else sign * math.inf), 0
        if self.visible:
            fraction = fraction >> (self.mantissa - self.visible) << (self.mantissa - self.visible)
        significand = fraction | (1 << self.mantissa if field else 0)
        if not significand:
            return Fraction(0), -126
        exponent = max(field, 1) - self.bias
        return sign * Fraction(significand, 1 << self.mantissa) * Fraction(2) ** exponent, exponent

    @property
    def largest_field(self) -> int:
        return (1 << (self.bits - 1 - self.mantissa)) - 1

    def encode(self, value: Number) -> int:
        """Rounded to nearest even; the canonical NaN."""
        if isinstance(value, float):
            if math.isnan(value):
                return self.largest_field << self.mantissa | 1 << (self.mantissa - 1)
            return self.largest_field << self.mantissa | (1 << (self.bits - 1) if value < 0 else 0)
        sign, magnitude = (1 << (self.bits - 1) if value < 0 else 0), abs(value)
        if not magnitude:
            return 0
        exponent = max(_floor_log2(magnitude), self.smallest)
        significand = round(magnitude / Fraction(2) ** (exponent - self.mantissa))      # ties to even
        code = significand + ((exponent - self.smallest) << self.mantissa)
        return sign | min(code, self.largest_field << self.mantissa)


def _floor_log2(value: Fraction) -> int:
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


F16, BF16, F32, F64 = Format(16, 10, 15), Format(16, 7, 127), Format(32, 23, 127), Format(64, 52, 1023)
XF32 = Format(32, 23, 127, visible=10)
FP8, BF8 = Format(8, 3, 8, nuz=True), Format(8, 2, 16, nuz=True)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64, "xf32": XF32, "fp8": FP8, "bf8": BF8}
Term = tuple[Number, int]


def _product(a: Number, b: Number) -> Number:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    left, right = (float(x) if isinstance(x, float) else float((x > 0) - (x < 0)) for x in (a, b))
    return left * right


def special_sum(terms: Sequence[Number]) -> float | None:
    """The sum if an infinity or a NaN decides it."""
    found = [term for term in terms if isinstance(term, float)]
    return sum(found) if found else None


def fused_multiply_add(a: Number, b: Number, c: Number, result: Format) -> int:
    product = _product(a, b)
    special = special_sum([product, c])
    if special is not None:
        return result.encode(special)
    exact = product + c
    if exact == 0:
        raise ValueError("the sign of a zero is not modelled")
    return result.encode(exact)


def _units(value: Fraction, exponent: int, rounding: Callable[[Fraction], int]) -> Fraction:
    """``value`` rounded to a multiple of 2^exponent."""
    unit = Fraction(2) ** exponent
    return rounding(value / unit) * unit


def _aligned(products: Sequence[tuple[Fraction, int]]) -> tuple[Fraction, int]:
    top = max(exponent for _, exponent in products)
    return sum((_units(value, top - 24, math.trunc) for value, _ in products), Fraction(0)), top


def add_group(a: Sequence[Term], b: Sequence[Term], c: int, eight_bits: bool) -> int:
    """One group of products added to the f32 ``c`` (bits); the result's bits."""
    accumulator, exponent = F32.decode(c)
    values = [_product(x, y) for (x, _), (y, _) in zip(a, b, strict=True)]
    special = special_sum([*values, accumulator])
    if special is not None:
        return F32.encode(special)
    huge = [math.copysign(math.inf, value) for value in values if abs(value) >= 2**128]
    if huge:
        return F32.encode(sum(huge))
    assert isinstance(accumulator, Fraction)
    products = [(Fraction(value), x + y) for value, (_, x), (_, y) in zip(values, a, b, strict=True)]
    if eight_bits:
        (even, even_top), (odd, odd_top) = _aligned(products[0::2]), _aligned(products[1::2])
        top = max(even_top, odd_top)
        total = _units(even, top - 24, math.floor) + _units(odd, top - 24, math.floor)
    else:
        total, top = _aligned(products)
    last = max(top, exponent)
    if eight_bits and exponent < last - 25:
        accumulator = Fraction(0)
    return F32.encode(_units(total, last - 31, math.floor) + _units(accumulator, last - 24, math.floor))


def dot(kind: str, a: Sequence[Term], b: Sequence[Term], c: int) -> int:
    """All products of one result, in order, in the groups of ``kind`` (an A format)."""
    group = {"xf32": 4, "f16": 8, "bf16": 8, "fp8": 16, "bf8": 16}[kind]
    for first in range(0, len(a), group):
        c = add_group(a[first:first + group], b[first:first + group], c, kind.endswith("8"))
    return c


# --- layouts: (register, lowest bit, lane) of an element ------------------------------------------------------------

Place = tuple[int, int, int]


def factor_place(rows: int, blocks: int, kind: str, i: int, k: int, block: int, each: int) -> Place:
    """Of A[i][k] or B[k][i] in a dense operand; ``each``: how many k a lane holds."""
    bits = {"i8": 8}.get(kind) or FORMATS[kind].bits
    lane = (4 * block if rows == 4 else rows * block) + i + k // each * rows * blocks
    return k % each * bits // 32, k % each * bits % 32, lane


def result_place(rows: int, kind: str, i: int, j: int, block: int) -> Place:
    if kind == "f64":
        return (0, 0, 16 * i + 4 * block + j) if rows == 4 else (2 * (i // 4), 0, 16 * (i % 4) + j)
    if rows == 4:
        return i, 0, 4 * block + j
    if rows == 16:
        return 4 * block + i % 4, 0, 16 * (i // 4) + j
    return 16 * block + 4 * (i // 8) + i % 4, 0, 32 * (i // 4) % 64 + j
