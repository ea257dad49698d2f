# SPDX-License-Identifier: MIT
"""The functions that the pseudo-code calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tests.emulator.isa import arithmetic, fast, floats, values
from tests.emulator.isa.floats import BF8, FORMATS, FP8, NEAREST, ZERO, Format
from tests.emulator.isa.values import Array, Value, flag

if TYPE_CHECKING:
    from tests.emulator.isa.pcode import Env

Function = Callable[..., Value]
FUNCTIONS: dict[str, Function] = {}


def _register(function: Function) -> Function:
    FUNCTIONS[function.__name__.removeprefix("f_")] = function
    return function


def _how(env: Env, fmt: Format) -> tuple[int, bool]:
    return arithmetic.mode_of(env, fmt), not arithmetic.keeps_denormals(env, fmt)[1]


def _magnitude(v: Value) -> Array:
    return v.bits & np.uint64(arithmetic.format_of(v).sign - 1)


@_register
def fma(env: Env, a: Value, b: Value, c: Value) -> Value:
    fmt = arithmetic.format_of(c)
    return Value(c.kind, c.width, fast.fma(fmt, a.bits, b.bits, c.bits, *_how(env, fmt)))


@_register
def fma_scaled(env: Env, a: Value, b: Value, c: Value, power: Value) -> Value:
    """(a * b + c) * 2**power, rounded once."""
    fmt = arithmetic.format_of(c)
    mode, flush = _how(env, fmt)
    bits = np.broadcast_arrays(a.bits, b.bits, c.bits, values.integers(power))
    return Value(c.kind, c.width, np.array([floats.fma(fmt, *map(int, row[:3]), mode, flush, int(row[3]))
                                            for row in zip(*bits, strict=True)], dtype=np.uint64))


@_register
def sqrt(env: Env, v: Value) -> Value:
    fmt = arithmetic.format_of(v)
    return Value(v.kind, v.width, fast.sqrt(fmt, v.bits, *_how(env, fmt)))


def _whole(function: Callable[[Array], Array]) -> Function:
    def run(env: Env, v: Value) -> Value:
        return Value(v.kind, v.width, fast.rounded(arithmetic.format_of(v), v.bits, function))
    return run


FUNCTIONS |= {"trunc": _whole(np.trunc), "floor": _whole(np.floor), "rndne": _whole(np.rint)}


@_register
def fract(env: Env, v: Value) -> Value:
    """x - floor(x), and below 1: the hardware clamps what would round up."""
    fmt = arithmetic.format_of(v)
    result = fast.add(fmt, v.bits, fast.rounded(fmt, v.bits, np.floor) ^ np.uint64(fmt.sign), *_how(env, fmt))
    one = fmt.bias << fmt.mbits
    return Value(v.kind, v.width, np.where(result == one, np.uint64(one - 1), result))


@_register
def f_abs(env: Env, v: Value) -> Value:
    return Value(v.kind, v.width, _magnitude(v))


@_register
def sign(env: Env, v: Value) -> Value:
    return flag(v.bits >= np.uint64(arithmetic.format_of(v).sign))


@_register
def exponent(env: Env, v: Value) -> Value:
    """Biased, as encoded."""
    fmt = arithmetic.format_of(v)
    return values.value("I", 32, (v.bits >> np.uint64(fmt.mbits)) & np.uint64(fmt.emax))


@_register
def ldexp(env: Env, v: Value, power: Value) -> Value:
    fmt = arithmetic.format_of(v)
    mode, flush = _how(env, fmt)

    def one(bits: int, by: int) -> int:
        if floats.is_nan(fmt, bits):
            return floats.quieted(fmt, (bits,))
        if floats.is_inf(fmt, bits):
            return bits
        s, m, e = floats.unpack(fmt, bits)
        return floats.pack(fmt, s, m, e + max(-5000, min(5000, by)), mode, flush)

    rows = np.broadcast_arrays(v.bits, values.integers(power))
    return Value(v.kind, v.width, np.array([one(int(b), int(p)) for b, p in zip(*rows, strict=True)], np.uint64))


def _frexp(v: Value) -> list[tuple[int, int, int] | None]:
    """(sign, mantissa, exponent) with the value mantissa * 2**exponent and 0.5 <= mantissa < 1; None when there is
    none."""
    fmt = arithmetic.format_of(v)
    found: list[tuple[int, int, int] | None] = []
    for bits in map(int, v.bits):
        if floats.is_nan(fmt, bits) or floats.is_inf(fmt, bits) or not bits & (fmt.sign - 1):
            found.append(None)
        else:
            s, m, e = floats.unpack(fmt, bits)
            found.append((s, m, e))
    return found


@_register
def frexp_exponent(env: Env, v: Value) -> Value:
    numbers = [0 if f is None else f[1].bit_length() + f[2] for f in _frexp(v)]
    return values.value("I", 32, np.array(numbers, dtype=object))


@_register
def mantissa(env: Env, v: Value) -> Value:
    fmt = arithmetic.format_of(v)
    bits = [floats.quieted(fmt, (int(b),)) if floats.is_nan(fmt, int(b)) else int(b) if f is None
            else floats.pack(fmt, f[0], f[1], -f[1].bit_length()) for b, f in zip(v.bits, _frexp(v), strict=True)]
    return Value(v.kind, v.width, np.array(bits, dtype=np.uint64))


@_register
def isNAN(env: Env, v: Value) -> Value:
    return flag(fast.is_nan(arithmetic.format_of(v), v.bits))


def _quiet(v: Value) -> Array:
    return (v.bits & np.uint64(arithmetic.format_of(v).quiet)) != 0


@_register
def isQuietNAN(env: Env, v: Value) -> Value:
    return flag(fast.is_nan(arithmetic.format_of(v), v.bits) & _quiet(v))


@_register
def isSignalNAN(env: Env, v: Value) -> Value:
    return flag(fast.is_nan(arithmetic.format_of(v), v.bits) & ~_quiet(v))


@_register
def cvtToQuietNAN(env: Env, v: Value) -> Value:
    return Value(v.kind, v.width, v.bits | np.uint64(arithmetic.format_of(v).quiet))


def _extreme(largest: bool) -> Function:
    """IEEE minNum and maxNum with -0 < +0; in IEEE mode a signalling NaN wins, quieted."""
    def run(env: Env, a: Value, b: Value) -> Value:
        if not a.floating:
            less = truth_of("<", a, b)
            return Value(a.kind, a.width, values.where(~less if largest else less, a.bits, b.bits))
        fmt = arithmetic.format_of(a)
        nan_a, nan_b = fast.is_nan(fmt, a.bits), fast.is_nan(fmt, b.bits)
        # Order of the encodings as sign and magnitude: -0 just below +0.
        key_a, key_b = _ordered(a), _ordered(b)
        first = key_a >= key_b if largest else key_a < key_b
        result = np.where(nan_a, b.bits, np.where(nan_b | first, a.bits, b.bits))
        if env.mode & 0x200:
            quiet = np.uint64(fmt.quiet)
            result = np.where(nan_b & ~_quiet(b), b.bits | quiet, result)
            result = np.where(nan_a & ~_quiet(a), a.bits | quiet, result)
        return Value(a.kind, a.width, result)
    return run


def truth_of(op: str, a: Value, b: Value) -> Array:
    return arithmetic.truth(arithmetic._compare(op, a, b))


def _ordered(v: Value) -> Array:
    magnitude = _magnitude(v).astype(np.int64)
    return np.where(v.bits >= np.uint64(arithmetic.format_of(v).sign), -magnitude - 1, magnitude)


for _kind in ("f16", "f32", "f64", "i16", "u16", "i32", "u32"):
    _low, _high = _extreme(False), _extreme(True)
    FUNCTIONS[f"v_min_{_kind}"], FUNCTIONS[f"v_max_{_kind}"] = _low, _high
    FUNCTIONS[f"v_min3_{_kind}"] = lambda env, a, b, c, f=_low: f(env, f(env, a, b), c)
    FUNCTIONS[f"v_max3_{_kind}"] = lambda env, a, b, c, f=_high: f(env, f(env, a, b), c)


def _float_to_float(source: Format, target: Format, kind: str, saturate: bool = False) -> Function:
    def run(env: Env, v: Value) -> Value:
        mode, flush = (NEAREST, False) if target.fnuz else _how(env, target)
        return Value(kind, target.width, fast.convert(source, target, v.bits, mode, flush, saturate))
    return run


def _float_to_integer(fmt: Format, kind: str, width: int, mode: int = ZERO) -> Function:
    low, high = (0, values.mask(width)) if kind == "U" else (-(1 << (width - 1)), values.mask(width - 1))

    def run(env: Env, v: Value) -> Value:
        return values.value(kind, width, np.array(fast.to_integers(fmt, v.bits, low, high, mode), dtype=object))
    return run


def _integer_to_float(fmt: Format) -> Function:
    def run(env: Env, v: Value) -> Value:
        return Value("F", fmt.width, fast.from_integers(fmt, list(values.integers(v)), arithmetic.mode_of(env, fmt)))
    return run


def _integer_to_integer(kind: str, width: int, saturate: bool) -> Function:
    low, high = (0, values.mask(width)) if kind == "U" else (-(1 << (width - 1)), values.mask(width - 1))

    def run(env: Env, v: Value) -> Value:
        numbers = values.integers(v)
        return values.value(kind, width, np.clip(numbers, low, high) if saturate else numbers)
    return run


def _normalised(fmt: Format, kind: str) -> Function:
    """-1..1 (0..1 unsigned) to the whole range of 16 bits, nearest even; NaN gives 0."""
    def one(bits: int) -> int:
        scale, low = (32767, -1.0) if kind == "I" else (65535, 0.0)
        number = floats.to_float(fmt, bits)
        if math.isnan(number):
            return 0
        return round(max(low, min(1.0, number)) * scale)   # exact in f64 for f32: 24 + 16 bits

    def run(env: Env, v: Value) -> Value:
        return values.value(kind, 16, np.array([one(int(b)) for b in v.bits], dtype=object))
    return run


def _fill() -> None:
    names = {"f16": ("F", 16), "bf16": ("BF", 16), "f32": ("F", 32), "f64": ("F", 64), "fp8": ("FP8", 8),
             "bf8": ("BF8", 8)}
    for source, key in names.items():
        for target, other in names.items():
            if source != target:
                FUNCTIONS[f"{source}_to_{target}"] = _float_to_float(FORMATS[key], FORMATS[other], other[0])
        for width in (8, 16, 32):
            for kind in "ui":
                FUNCTIONS[f"{source}_to_{kind}{width}"] = _float_to_integer(FORMATS[key], kind.upper(), width)
                if key[0] == "F":
                    FUNCTIONS[f"{kind}{width}_to_{source}"] = _integer_to_float(FORMATS[key])
        FUNCTIONS[f"{source}_to_snorm"] = _normalised(FORMATS[key], "I")
        FUNCTIONS[f"{source}_to_unorm"] = _normalised(FORMATS[key], "U")
    for kind in "ui":
        for width in (4, 8, 16):
            FUNCTIONS[f"{kind}{width}_to_{kind}32"] = _integer_to_integer(kind.upper(), 32, saturate=False)
        FUNCTIONS[f"{kind}32_to_{kind}16"] = _integer_to_integer(kind.upper(), 16, saturate=True)
    FUNCTIONS["f32_to_u8"] = _float_to_integer(floats.F32, "U", 8, NEAREST)
    # The conversions to fp8 saturate when CLAMP is set; without it overflow is NaN.
    for name, fmt, kind in (("fp8", FP8, "FP8"), ("bf8", BF8, "BF8")):
        FUNCTIONS[f"f32_to_{name}_saturating"] = _float_to_float(floats.F32, fmt, kind, saturate=True)


_fill()


@_register
def signext(env: Env, v: Value) -> Value:
    return values.value("I", 64, values.extended(Value("I", v.width, v.bits), 64))


@_register
def signext_from_bit(env: Env, v: Value, at: Value) -> Value:
    """The low ``at`` bits as a signed number; none of them is 0, all of them no change."""
    def one(bits: int, width: int) -> int:
        if width >= v.width:
            return bits
        low = bits & values.mask(width)
        return low - (1 << width) if width and low >> (width - 1) else low

    rows = np.broadcast_arrays(v.bits, at.bits)
    return values.value("I", v.width, np.array([one(int(b), int(n)) for b, n in zip(*rows, strict=True)],
                                               dtype=object))


@_register
def s_ff1_i32_b64(env: Env, v: Value) -> Value:
    return values.value("I", 32, np.array([(int(b) & -int(b)).bit_length() - 1 for b in v.bits], dtype=object))


@_register
def bitCount(env: Env, v: Value) -> Value:
    return values.value("U", 32, np.array([int(b).bit_count() for b in v.bits], dtype=np.uint64))


def _sad(masked: bool) -> Function:
    def run(env: Env, a: Value, b: Value, c: Value) -> Value:
        total = values.extended(c, 32).astype(np.int64)
        for shift in (0, 8, 16, 24):
            x = ((values.extended(a, 32) >> np.uint64(shift)) & np.uint64(255)).astype(np.int64)
            y = ((values.extended(b, 32) >> np.uint64(shift)) & np.uint64(255)).astype(np.int64)
            total = total + np.where(masked & (y == 0), 0, np.abs(x - y))
        return values.value("U", 32, total.astype(np.uint64))
    return run


FUNCTIONS["v_sad_u8"], FUNCTIONS["v_msad_u8"] = _sad(False), _sad(True)


def _real(function: Callable[[float], float]) -> Function:
    """Through f64: right to about an ulp in f32, which is all that is asked of these."""
    def one(fmt: Format, bits: int) -> int:
        number = floats.to_float(fmt, bits)
        if math.isnan(number):
            return floats.quieted(fmt, (bits,))
        try:
            result = function(number)
        except OverflowError:
            result = math.inf
        except ValueError:
            return fmt.nan
        return int(fast.encodings(fmt, np.array([result]))[0])

    def run(env: Env, v: Value) -> Value:
        fmt = arithmetic.format_of(v)
        return Value(v.kind, v.width, fast.each(lambda b: one(fmt, b), v.bits))
    return run


def _log2(x: float) -> float:
    return -math.inf if x == 0 else math.log2(x)


FUNCTIONS |= {"log2": _real(_log2), "exp2": _real(lambda x: 2.0 ** x),
              "sin_turns": _real(lambda x: math.sin(2 * math.pi * math.fmod(x, 1.0))),
              "cos_turns": _real(lambda x: math.cos(2 * math.pi * math.fmod(x, 1.0)))}


def _stochastic(target: Format, kind: str) -> Function:
    """Add the top random bits below the last bit that stays, then cut: for normal results the manual's sum of mantissa
    and random number, with its carry into the exponent."""
    drop = floats.F32.mbits - target.mbits

    def one(bits: int, random: int) -> int:
        if floats.is_nan(floats.F32, bits) or floats.is_inf(floats.F32, bits):
            return floats.convert(floats.F32, target, bits)
        moved = (bits & 0x7FFFFFFF) + (random >> (32 - drop))
        return floats.convert(floats.F32, target, min(moved, 0x7F7FFFFF) | (bits & 0x80000000), ZERO)

    def run(env: Env, v: Value, random: Value) -> Value:
        return Value(kind, target.width, fast.each(one, v.bits, random.bits))
    return run


FUNCTIONS["f32_to_fp8_sr"], FUNCTIONS["f32_to_bf8_sr"] = _stochastic(FP8, "FP8"), _stochastic(BF8, "BF8")
