# SPDX-License-Identifier: MIT
"""Operators, conversions and literals of the pseudo-code.

Integers shorter than 32 bits are computed in 32, as the manual's own sums of bytes assume; writing the result cuts it.
Floats are rounded once, to the wider of the two formats, as MODE says.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.emulator.isa import fast, values
from tests.emulator.isa.floats import FORMATS, NEAREST, Format
from tests.emulator.isa.values import Array, Value, constant, flag

if TYPE_CHECKING:
    from tests.emulator.isa.pcode import Env

WIDE = 128   # integer results that keep all their bits, for saturation


def format_of(v: Value) -> Format:
    return FORMATS[v.kind, v.width]


def real(number: float, width: int = 64) -> Value:
    fmt = FORMATS["F", width]
    return Value("F", width, fast.encodings(fmt, np.array([number])))


@cache
def literal(text: str) -> Value:
    """``2.0F`` ``1ULL`` ``0xffLL`` ``1'0U`` ``16'1.0`` ``8'0xff``; without a suffix a signed 32-bit integer."""
    if match := re.fullmatch(r"(\d+)'(.*?)(U|F)?", text):
        width, body, suffix = int(match.group(1)), match.group(2), match.group(3)
        if "." in body:
            return real(float(body), width)
        return constant("U" if suffix == "U" else "I", width, int(body, 0))
    if "." in text:
        return real(float(text.rstrip("F")), 32 if text.endswith("F") else 64)
    match = re.fullmatch(r"(0x[0-9a-fA-F]+|\d+)(ULL|LL|U)?", text)
    assert match, text
    number = int(match.group(1), 0)
    suffix = match.group(2) or ""
    wide = suffix in ("ULL", "LL")
    return constant("U" if suffix.startswith("U") else "I", 64 if wide else 32, number)


CONSTANTS = {
    "INF": real(math.inf), "NAN": real(math.nan), "PI": real(math.pi), "DENORM": real(0.0),
    "UNDERFLOW_F32": real(0.0, 32), "UNDERFLOW_F64": real(0.0),
    "OVERFLOW_F32": real(math.inf, 32), "OVERFLOW_F64": real(math.inf),
    "ROUND_NEAREST_EVEN": constant("U", 8, 0), "ROUND_TOWARD_ZERO": constant("U", 8, 3),
    **{f"BYTE{i}": constant("U", 3, i) for i in range(4)},
    "WORD0": constant("U", 3, 4), "WORD1": constant("U", 3, 5),
}


def mode_of(env: Env, fmt: Format) -> int:
    """The rounding mode that a result in ``fmt`` is rounded by."""
    if env.rounding is not None:
        return env.rounding
    return env.mode & 3 if fmt.name == "f32" else (env.mode >> 2) & 3


def keeps_denormals(env: Env, fmt: Format) -> tuple[bool, bool]:
    """Of sources and of results. MODE.FP_DENORM: bit 0 lets sources through, bit 1 results."""
    bits = env.mode >> (4 if fmt.name == "f32" else 6)
    return bool(bits & 1), bool(bits & 2)


def flush_source(env: Env, v: Value) -> Value:
    fmt = format_of(v)
    if keeps_denormals(env, fmt)[0]:
        return v
    return Value(v.kind, v.width, fast.flushed(fmt, v.bits))


def truth(v: Value) -> Array:
    return np.asarray(v.bits != 0, dtype=bool)


def cast(env: Env, v: Value, kind: str, width: int) -> Value:
    """``32'F(x)`` and the like: floats convert by value, integers by bits; bits become the float they encode, save
    that numbers beyond 64 bits convert by value."""
    floating = kind in values.FLOATS
    if v.floating and floating:
        if (v.kind, v.width) == (kind, width):
            return v
        target = FORMATS[kind, width]
        flush = not keeps_denormals(env, target)[1]
        # A signalling NaN stays one when widened: the manual asks about it after the cast.
        return Value(kind, width, fast.convert(format_of(v), target, v.bits, mode_of(env, target), flush,
                                               quiet=width <= v.width))
    if floating and v.width > 64:
        target = FORMATS[kind, width]
        return Value(kind, width, fast.from_integers(target, list(values.integers(v)), mode_of(env, target)))
    if kind == "B" and width == 1201:
        return constant("B", width, two_over_pi(width))
    if env.wide and v.width == WIDE and kind in ("U", "I") and width < WIDE:
        low, high = (0, values.mask(width)) if kind == "U" else (-(1 << (width - 1)), values.mask(width - 1))
        return values.value(kind, width, np.clip(values.integers(v), low, high))
    return Value(kind, width, values.extended(v, width))


@cache
def two_over_pi(bits: int) -> int:
    """The first ``bits`` bits of the fraction 2/pi, by Machin's formula for pi."""
    guard = bits + 64

    def arctan_inverse(x: int) -> int:
        total, term, n, sign = 0, (1 << guard) // x, 1, 1
        while term:
            total += sign * (term // n)
            term, n, sign = term // (x * x), n + 2, -sign
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    return ((1 << (guard + 1 + bits)) // pi) & values.mask(bits)


def choose(env: Env, condition: Array, yes: Value, no: Value) -> Value:
    kind, width = _common(yes, no)
    if kind in values.FLOATS:
        first, second = to_float(env, yes, kind, width).bits, to_float(env, no, kind, width).bits
    else:
        if yes.kind == no.kind and yes.width == no.width:
            kind, width = yes.kind, yes.width
        first, second = values.extended(yes, width), values.extended(no, width)
    return Value(kind, width, values.where(condition, first, second))


def _common(a: Value, b: Value) -> tuple[str, int]:
    if a.floating or b.floating:
        wider = max((v for v in (a, b) if v.floating), key=lambda v: v.width)
        return wider.kind, wider.width
    width = max(32, a.width, b.width)
    return ("I" if a.kind == b.kind == "I" else "U"), width


def to_float(env: Env, v: Value, kind: str, width: int) -> Value:
    if v.floating:
        return cast(env, v, kind, width)
    fmt = FORMATS[kind, width]
    return Value(kind, width, fast.from_integers(fmt, list(values.integers(v)), mode_of(env, fmt)))


def unary(env: Env, op: str, v: Value) -> Value:
    if op == "+":
        return v
    if op == "!":
        return flag(~truth(v))
    if op == "-" and v.floating:
        return Value(v.kind, v.width, v.bits ^ np.uint64(format_of(v).sign))
    if op == "-":
        width = max(32, v.width)
        return values.value("I", width, -values.integers(v))
    width = v.width if v.kind == "B" else max(32, v.width)
    return values.value(v.kind, width, values.extended(v, width) ^ (
        values.mask(width) if width > 64 else np.uint64(values.mask(width))))


def binary(env: Env, op: str, a: Value, b: Value) -> Value:
    if op in ("&&", "||"):
        return flag(truth(a) & truth(b) if op == "&&" else truth(a) | truth(b))
    if op in _COMPARE:
        return _compare(op, a, b)
    if op == "**":
        return _power(a, b)
    if a.floating or b.floating:
        return _float(env, op, a, b)
    if op in ("<<", ">>"):
        return _shift(op, a, b)
    if op in ("&", "|", "^"):
        width = max(a.width, b.width)
        kind = a.kind if a.kind == b.kind else "U"
        x, y = values.extended(a, width), values.extended(b, width)
        return Value(kind, width, x & y if op == "&" else x | y if op == "|" else x ^ y)
    return _integer(env, op, a, b)


_COMPARE = {"==", "!=", "<>", "<", ">", "<=", ">="}


def _compare(op: str, a: Value, b: Value) -> Value:
    x: Any
    y: Any
    if a.floating or b.floating:
        x, y = (_plain(v) for v in (a, b))
    elif max(a.width, b.width) > 64:
        x, y = values.integers(a), values.integers(b)
    elif "I" in (a.kind, b.kind) and _common(a, b)[0] == "I":
        x, y = values.signed64(a), values.signed64(b)
    else:
        width = _common(a, b)[1]
        x, y = values.extended(a, width), values.extended(b, width)
    with np.errstate(invalid="ignore"):
        if op == "<>":
            return flag((x < y) | (x > y))
        table = {"==": np.equal, "!=": np.not_equal, "<": np.less, ">": np.greater, "<=": np.less_equal,
                 ">=": np.greater_equal}
        return flag(np.asarray(table[op](x, y), dtype=bool))


def _plain(v: Value) -> Array:
    if not v.floating:
        return values.integers(v).astype(np.float64)
    with np.errstate(invalid="ignore"):   # a signalling NaN
        return fast.numbers(format_of(v), v.bits).astype(np.float64)


def is_denormal(env: Env, v: Value, width: int) -> Value:
    """``x == DENORM.f32``: x is a denormal of that width."""
    fmt = FORMATS["F", width]
    x = np.abs(_plain(v))
    return flag((x > 0) & (x < math.ldexp(1.0, 1 - fmt.bias)))


def _power(a: Value, b: Value) -> Value:
    """Powers of two, in f64 so that none is out of range before it is used."""
    exponents = np.clip(values.integers(b).astype(np.int64), -1074, 1023)
    return Value("F", 64, fast.encodings(fast.F64, np.ldexp(1.0, exponents)))


def _float(env: Env, op: str, a: Value, b: Value) -> Value:
    kind, width = _common(a, b)
    fmt = FORMATS[kind, width]
    x, y = to_float(env, a, kind, width).bits, to_float(env, b, kind, width).bits
    how = (mode_of(env, fmt), not keeps_denormals(env, fmt)[1])
    if op == "-":
        nan = fast.is_nan(fmt, y)
        op, y = "+", np.where(nan, y, y ^ np.uint64(fmt.sign))
    function = {"+": fast.add, "*": fast.multiply, "/": fast.divide}[op]
    return Value(kind, width, function(fmt, x, y, *how))


def _shift(op: str, a: Value, b: Value) -> Value:
    width = max(32, a.width)
    if width > 64:
        x, n = values.integers(a), b.bits.astype(object)
        return values.value(a.kind, width, x << n if op == "<<" else x >> n)
    amount = b.bits if b.bits.dtype != object else b.bits.astype(np.uint64)
    far = amount >= np.uint64(width)
    near = np.where(far, np.uint64(width - 1), amount)
    if op == "<<":
        bits = np.where(far, np.uint64(0), values.extended(a, width) << near)
    elif a.kind == "I":
        bits = (values.signed64(a) >> near.astype(np.int64)).view(np.uint64)
    else:
        bits = np.where(far, np.uint64(0), values.extended(a, width) >> near)
    return values.value(a.kind, width, bits)


def _integer(env: Env, op: str, a: Value, b: Value) -> Value:
    kind, width = _common(a, b)
    if env.wide and op in "+-*":
        x, y = values.integers(a), values.integers(b)
        return values.value("I", WIDE, x + y if op == "+" else x - y if op == "-" else x * y)
    if width > 64 or op in "/%":
        x, y = values.integers(a), values.integers(b)
        result = {"+": x + y, "-": x - y, "*": x * y}.get(op)
        if result is None:
            result = x // y if op == "/" else x % y
        return values.value(kind, width, result)
    x, y = values.extended(a, width), values.extended(b, width)
    with np.errstate(over="ignore"):
        return values.value(kind, width, x + y if op == "+" else x - y if op == "-" else x * y)


def reversed_bits(v: Value) -> Value:
    digits = [int(f"{int(b):0{v.width}b}"[::-1], 2) for b in v.bits]
    return values.value("B", v.width, np.array(digits, dtype=object))


__all__ = ["CONSTANTS", "FUNCTIONS", "NEAREST", "binary", "cast", "choose", "flush_source", "is_denormal", "literal",
           "reversed_bits", "truth", "unary"]

from tests.emulator.isa.functions import FUNCTIONS  # noqa: E402  (the functions use the operators above)
