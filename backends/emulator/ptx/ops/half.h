// SPDX-License-Identifier: MIT
// Conversions between f32 and the short formats, for 32 lanes. Results follow an H200 bit by bit: NaNs are canonical.
#pragma once

#include "../types.h"

namespace emu::ptx {

/// f16 in the low halves.
inline f32v from_f16(u32v half) {
    const u32v sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    // The exponent is moved by a multiplication, which also takes subnormals.
    const f32v scaled = bits<f32v>(magnitude << 13) * 0x1p112f;
    const u32v finite = bits<u32v>(scaled);
    const i32v is_special = bits<i32v>(magnitude >= 0x7c00u);
    const u32v nan = choose<u32v>(bits<i32v>(magnitude > 0x7c00u), u32v(0x7fffffffu), u32v(0x7f800000u));
    return bits<f32v>(
        choose<u32v>(is_special, nan | choose<u32v>(bits<i32v>(magnitude > 0x7c00u), u32v(0u), sign), finite | sign));
}

enum class Round : u8 { Nearest, Zero, Down, Up };

/// A value of `kFraction` fraction bits, exponents from `kLeast` (the least of normal numbers), rounded from f64, exactly once.
/// Returns the rounded value as f64; overflow is the caller's.
template <int kFraction, int kLeast>
f64v rounded_to(f64v value, Round round) {
    // 2^(exponent - fraction) of each value, but not below the step of subnormals.
    const u64v word = bits<u64v>(value);
    const i64v exponent = __builtin_elementwise_max(bits<i64v>((word >> 52) & 0x7ffu) - 1023, i64v(kLeast));
    const f64v step = bits<f64v>(bits<u64v>((exponent - kFraction + 1023) << 52));
    const f64v inverse = bits<f64v>(bits<u64v>((kFraction - exponent + 1023) << 52));
    f64v units = value * inverse;
    switch (round) {
        case Round::Nearest: units = __builtin_elementwise_roundeven(units); break;
        case Round::Zero: units = __builtin_elementwise_trunc(units); break;
        case Round::Down: units = __builtin_elementwise_floor(units); break;
        case Round::Up: units = __builtin_elementwise_ceil(units); break;
    }
    // A zero keeps the value's sign.
    return bits<f64v>(bits<u64v>(units * step) | (word & (u64{1} << 63)));
}

/// The bits of f16 (kFraction 10, 5 exponent bits) or bf16 (7, 8) nearest to f64 values; infinities and NaN included.
template <int kFraction, int kExponentBits>
u32v to_short(f64v value, Round round, bool finite_only = false) {
    constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
    constexpr int kLeast = 1 - kBias;
    constexpr u32 kInfinity = ((1u << kExponentBits) - 1) << kFraction;
    const u32v sign = convert<u32v>(bits<u64v>(value) >> 63) << (kFraction + kExponentBits);
    const f64v r = __builtin_elementwise_abs(rounded_to<kFraction, kLeast>(value, round));
    const u64v word = bits<u64v>(r);
    const i64v exponent = bits<i64v>(word >> 52) - 1023;
    const u32v normal = convert<u32v>(
        (bits<u64v>(exponent + kBias) << kFraction) | ((word >> (52 - kFraction)) & ((u64{1} << kFraction) - 1)));
    const f64 steps = as_f64(static_cast<u64>(kFraction - kLeast + 1023) << 52);
    const u32v subnormal = convert<u32v>(r * steps);
    u32v result = choose<u32v>(convert<i32v>(exponent >= kLeast), normal, subnormal);
    // Too large: infinity, or the largest number where rounding goes the other way.
    const i32v large = convert<i32v>(exponent > kBias);
    const i32v infinite = convert<i32v>(__builtin_elementwise_abs(value) == f64v(__builtin_inf()));
    const i32v negative = bits<i32v>(sign != 0u);
    i32v to_largest = i32v(0);
    if (round == Round::Zero || finite_only) to_largest = i32v(-1);
    if (round == Round::Down) to_largest = ~negative;
    if (round == Round::Up) to_largest = negative;
    if (!finite_only) to_largest &= ~infinite;
    result = choose<u32v>(large, choose<u32v>(to_largest, u32v(kInfinity - 1), u32v(kInfinity)), result);
    const i32v nan = convert<i32v>(value != value);
    return choose<u32v>(nan, u32v((1u << (kFraction + kExponentBits)) - 1), result | sign);
}

inline u32v to_f16(f64v value, Round round = Round::Nearest) { return to_short<10, 5>(value, round); }
inline u32v to_bf16(f64v value, Round round = Round::Nearest) { return to_short<7, 8>(value, round); }
/// NaNs keep their payload.
inline f32v from_bf16(u32v half) { return bits<f32v>(half << 16); }

/// One fp8 number: e4m3 has NaN at 7f and no infinity; e5m2 is f16 cut short.
inline f32 from_e4m3(u8 code) {
    const u32 magnitude = code & 0x7f;
    if (magnitude == 0x7f) return as_f32(0x7fffffff);
    const f32 value = magnitude >= 8 ? as_f32((magnitude << 20) + (120u << 23)) : static_cast<f32>(magnitude) * 0x1p-9f;
    return code & 0x80 ? -value : value;
}

/// To nearest even, too large numbers and infinities to the largest one, NaN 7f.
template <bool E5m2>
u32v to_fp8(f64v value) {
    if constexpr (E5m2) {
        return to_short<2, 5>(value, Round::Nearest, true);
    } else {
        const u32v sign = convert<u32v>(bits<u64v>(value) >> 63) << 7;
        const f64v magnitude =
            __builtin_elementwise_min(__builtin_elementwise_abs(rounded_to<3, -6>(value, Round::Nearest)), f64v(448.0));
        const u64v word = bits<u64v>(magnitude);
        const i64v exponent = bits<i64v>(word >> 52) - 1023;
        const u32v normal = convert<u32v>((bits<u64v>(exponent + 7) << 3) | ((word >> 49) & 7u));
        const u32v subnormal = convert<u32v>(magnitude * 0x1p9);
        const u32v result = choose<u32v>(convert<i32v>(exponent >= -6), normal, subnormal);
        return choose<u32v>(convert<i32v>(value != value), u32v(0x7fu), result | sign);
    }
}

}  // namespace emu::ptx
