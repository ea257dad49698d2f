# SPDX-License-Identifier: MIT
"""Binary floating-point formats and exact arithmetic on their encodings, on Python integers.

Every operation is computed exactly and rounded once, so that rounding and denormal modes need no trick. ``fast.py``
does the common case with NumPy and is tested against this.

A finite value is ``(sign, mantissa, exponent)``: ``(-1)**sign * mantissa * 2**exponent`` with an integer mantissa.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

NEAREST, UP, DOWN, ZERO = range(4)   # MODE.FP_ROUND


@dataclass(frozen=True)
class Format:
    """``ebits`` and ``mbits`` count the exponent and the stored mantissa; ``fnuz``: no infinity, no negative zero, the
    only NaN is sign alone (the fp8 formats of gfx942)."""

    name: str
    ebits: int
    mbits: int
    bias: int
    fnuz: bool = False

    @property
    def width(self) -> int:
        return 1 + self.ebits + self.mbits

    @property
    def emax(self) -> int:
        """The largest biased exponent."""
        return (1 << self.ebits) - 1

    @property
    def inf(self) -> int:
        return self.emax << self.mbits

    @property
    def quiet(self) -> int:
        """The bit that makes a NaN quiet."""
        return 1 << (self.mbits - 1)

    @property
    def nan(self) -> int:
        return 1 << (self.width - 1) if self.fnuz else self.inf | self.quiet

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def largest(self) -> int:
        return (self.sign - 1) if self.fnuz else self.inf - 1


F16 = Format("f16", 5, 10, 15)
BF16 = Format("bf16", 8, 7, 127)
F32 = Format("f32", 8, 23, 127)
F64 = Format("f64", 11, 52, 1023)
FP8 = Format("fp8", 4, 3, 8, fnuz=True)
BF8 = Format("bf8", 5, 2, 16, fnuz=True)
FORMATS = {("F", 16): F16, ("BF", 16): BF16, ("F", 32): F32, ("F", 64): F64, ("FP8", 8): FP8, ("BF8", 8): BF8}

Finite = tuple[int, int, int]


def is_nan(fmt: Format, bits: int) -> bool:
    return bits == fmt.nan if fmt.fnuz else (bits & (fmt.sign - 1)) > fmt.inf


def is_inf(fmt: Format, bits: int) -> bool:
    return not fmt.fnuz and (bits & (fmt.sign - 1)) == fmt.inf


def unpack(fmt: Format, bits: int) -> Finite:
    """Of a finite encoding."""
    exponent = (bits >> fmt.mbits) & fmt.emax
    mantissa = bits & ((1 << fmt.mbits) - 1)
    if exponent:
        mantissa |= 1 << fmt.mbits
    return int(bits >= fmt.sign), mantissa, max(exponent, 1) - fmt.bias - fmt.mbits


def pack(fmt: Format, sign: int, mantissa: int, exponent: int, mode: int = NEAREST, flush: bool = False,
         saturate: bool = False) -> int:
    """Round to the format. ``flush``: a denormal result becomes zero. Overflow gives infinity (or the largest number,
    as the mode says); in an fnuz format NaN, or with ``saturate`` the largest number."""
    top = fmt.sign if sign else 0
    if mantissa == 0:
        return 0 if fmt.fnuz else top
    lowest = 1 - fmt.bias - fmt.mbits
    unit = max(mantissa.bit_length() + exponent - (fmt.mbits + 1), lowest)
    mantissa = _shift(mantissa, unit - exponent, mode, sign)
    if mantissa >> (fmt.mbits + 1):
        mantissa, unit = mantissa >> 1, unit + 1
    if mantissa >> fmt.mbits:
        bits = ((unit + fmt.mbits + fmt.bias) << fmt.mbits) | (mantissa & ((1 << fmt.mbits) - 1))
        if bits > fmt.largest:
            if fmt.fnuz:
                return top | fmt.largest if saturate else fmt.nan
            away = mode == NEAREST or (mode == UP and not sign) or (mode == DOWN and bool(sign))
            bits = fmt.inf if away else fmt.largest
        return top | bits
    if flush:
        mantissa = 0
    return 0 if fmt.fnuz and not mantissa else top | mantissa


def _shift(mantissa: int, right: int, mode: int, sign: int) -> int:
    if right <= 0:
        return mantissa << -right
    low = mantissa & ((1 << right) - 1)
    high = mantissa >> right
    half = 1 << (right - 1)
    if mode == NEAREST:
        up = low > half or (low == half and bool(high & 1))
    else:
        up = bool(low) and mode == (DOWN if sign else UP)
    return high + up


def quieted(fmt: Format, values: Sequence[int]) -> int:
    """The NaN that an operation on ``values`` returns: the first NaN operand made quiet, or the default one."""
    for bits in values:
        if is_nan(fmt, bits):
            return bits if fmt.fnuz else bits | fmt.quiet
    return fmt.nan


def fma(fmt: Format, a: int, b: int, c: int, mode: int = NEAREST, flush: bool = False, power: int = 0) -> int:
    """(a * b + c) * 2**power with one rounding; the exact sum 0 of terms that differ in sign is +0, or -0 when rounding
    down (IEEE 754, 6.3)."""
    if is_nan(fmt, a) or is_nan(fmt, b) or is_nan(fmt, c):
        return quieted(fmt, (a, b, c))
    product_sign = (a ^ b) & fmt.sign
    if is_inf(fmt, a) or is_inf(fmt, b):
        zero = fmt.sign - 1
        if not a & zero or not b & zero or (is_inf(fmt, c) and (c & fmt.sign) != product_sign):
            return fmt.nan
        return product_sign | fmt.inf
    if is_inf(fmt, c):
        return c
    (sa, ma, ea), (sb, mb, eb), (sc, mc, ec) = unpack(fmt, a), unpack(fmt, b), unpack(fmt, c)
    low = min(ea + eb, ec)
    product = (ma * mb) << (ea + eb - low)
    addend = mc << (ec - low)
    total = (-product if sa ^ sb else product) + (-addend if sc else addend)
    if total == 0:
        negative = sc if (sa ^ sb) == sc else mode == DOWN
        return fmt.sign if negative else 0
    return pack(fmt, int(total < 0), abs(total), low + power, mode, flush)


def add(fmt: Format, a: int, b: int, mode: int = NEAREST, flush: bool = False) -> int:
    if is_nan(fmt, a) or is_nan(fmt, b):
        return quieted(fmt, (a, b))
    return fma(fmt, a, fmt.bias << fmt.mbits, b, mode, flush)


def multiply(fmt: Format, a: int, b: int, mode: int = NEAREST, flush: bool = False) -> int:
    if is_nan(fmt, a) or is_nan(fmt, b):
        return quieted(fmt, (a, b))
    # Adding a zero of the product's sign keeps that sign.
    return fma(fmt, a, b, (a ^ b) & fmt.sign, mode, flush)


def divide(fmt: Format, a: int, b: int, mode: int = NEAREST, flush: bool = False) -> int:
    if is_nan(fmt, a) or is_nan(fmt, b):
        return quieted(fmt, (a, b))
    sign = (a ^ b) & fmt.sign
    zero = fmt.sign - 1
    if is_inf(fmt, a) or not b & zero:
        return fmt.nan if is_inf(fmt, b) or not a & zero else sign | fmt.inf
    if is_inf(fmt, b) or not a & zero:
        return sign
    (_, ma, ea), (_, mb, eb) = unpack(fmt, a), unpack(fmt, b)
    extra = 2 * fmt.mbits + 8
    quotient, rest = divmod(ma << extra, mb)
    return pack(fmt, int(bool(sign)), quotient << 1 | bool(rest), ea - eb - extra - 1, mode, flush)


def sqrt(fmt: Format, a: int, mode: int = NEAREST, flush: bool = False) -> int:
    if is_nan(fmt, a):
        return quieted(fmt, (a,))
    if not a & (fmt.sign - 1):
        return a
    if a & fmt.sign:
        return fmt.nan
    if is_inf(fmt, a):
        return a
    _, m, e = unpack(fmt, a)
    shift = 2 * fmt.mbits + 16
    shift += (e - shift) & 1
    root = math.isqrt(m << shift)
    return pack(fmt, 0, root << 1 | (root * root != m << shift), (e - shift) // 2 - 1, mode, flush)


def convert(source: Format, target: Format, bits: int, mode: int = NEAREST, flush: bool = False,
            saturate: bool = False, quiet: bool = True) -> int:
    """Between formats. A NaN keeps its sign and the top of its payload; it becomes quiet unless told otherwise."""
    sign = int(bits >= source.sign)
    if is_nan(source, bits):
        if target.fnuz or source.fnuz:
            return target.nan
        payload = bits & ((1 << source.mbits) - 1) | (source.quiet if quiet else 0)
        shift = target.mbits - source.mbits
        payload = payload << shift if shift >= 0 else payload >> -shift
        return (target.sign if sign else 0) | target.inf | payload
    if is_inf(source, bits):
        if target.fnuz:
            return (target.sign if sign else 0) | target.largest if saturate else target.nan
        return (target.sign if sign else 0) | target.inf
    return pack(target, *unpack(source, bits), mode, flush, saturate)


def to_integer(fmt: Format, bits: int, low: int, high: int, mode: int = ZERO) -> int:
    """Saturating; NaN gives 0."""
    if is_nan(fmt, bits):
        return 0
    sign, mantissa, exponent = unpack(fmt, bits) if not is_inf(fmt, bits) else (int(bits >= fmt.sign), 1, 200)
    if exponent > 130:
        return low if sign else high
    value = _shift(mantissa, -exponent, mode, sign)
    return max(low, min(high, -value if sign else value))


def from_integer(fmt: Format, value: int, mode: int = NEAREST) -> int:
    return pack(fmt, int(value < 0), abs(value), 0, mode)


def to_float(fmt: Format, bits: int) -> float:
    """The exact value as a Python float (every format here fits)."""
    if is_nan(fmt, bits):
        return math.nan
    if is_inf(fmt, bits):
        return -math.inf if bits & fmt.sign else math.inf
    sign, mantissa, exponent = unpack(fmt, bits)
    value = math.ldexp(mantissa, exponent)
    return -value if sign else value
