// SPDX-License-Identifier: MIT
// What the floating-point files of ops/ share: vectors as bits, choices without branches, minimum and maximum.
//
// NaN: arithmetic is the host's, which quiets signalling NaNs and passes an operand's payload on. The manual does not
// say which of several NaN operands wins, so neither do we. An invalid operation gives 0xffc00000 where we make the
// NaN, which is what the manual shows for the functions and for division (and what an x86 host makes).
#pragma once

#include "../float16.h"
#include "../wave.h"

namespace emu {

constexpr u32 kInvalid32 = 0xffc00000u;

template <class F> struct Element;
template <> struct Element<f32v> {
    using Bits = u32v;
    using Truth = i32v;
    static constexpr u32 kQuiet = 1u << 22;
};
template <> struct Element<f64v> {
    using Bits = u64v;
    using Truth = i64v;
    static constexpr u64 kQuiet = u64{1} << 51;
};

template <class F>
inline auto bits_of(F value) {
    return std::bit_cast<typename Element<F>::Bits>(value);
}
inline f32v floats_of(u32v bits) { return std::bit_cast<f32v>(bits); }
inline f64v floats_of(u64v bits) { return std::bit_cast<f64v>(bits); }

inline f64v load_f64(const u32* words) { return floats_of(load64(words)); }
inline void store_f64(u32* words, f64v value) { store64(words, bits_of(value)); }

/// `condition` is the result of a vector comparison.
inline u32v choose(i32v condition, u32v yes, u32v no) { return small::pick(condition, yes, no); }
inline u64v choose(i64v condition, u64v yes, u64v no) {
    const u64v mask = std::bit_cast<u64v>(condition);
    return (yes & mask) | (no & ~mask);
}
inline i32v choose(i32v condition, i32v yes, i32v no) { return (yes & condition) | (no & ~condition); }
inline f32v choose(i32v condition, f32v yes, f32v no) {
    return floats_of(choose(condition, bits_of(yes), bits_of(no)));
}
inline f64v choose(i64v condition, f64v yes, f64v no) {
    return floats_of(choose(condition, bits_of(yes), bits_of(no)));
}

template <class F>
inline F magnitude(F value) {
    return __builtin_elementwise_abs(value);
}

/// NaN operands with the quiet bit set.
template <class F>
inline F quiet(F value) {
    return choose(value != value, floats_of(bits_of(value) | Element<F>::kQuiet), value);
}

/// v_min and v_max: a number wins over a quiet NaN, -0 is less than +0; with MODE.IEEE a signalling NaN, quieted, wins
/// over everything, the first one first.
template <bool kMax, class F>
inline F extremum(F a, F b, bool ieee) {
    using Bits = Element<F>::Bits;
    const Bits bits_a = bits_of(a), bits_b = bits_of(b);
    const auto nan_a = a != a, nan_b = b != b;
    const auto first = (kMax ? a > b : a < b) | (nan_b & ~nan_a);
    Bits result = choose(first, bits_a, bits_b);
    result = choose(a == b, kMax ? bits_a & bits_b : bits_a | bits_b, result);  // equal: at most the sign differs
    if (ieee) {
        constexpr auto kQuiet = Element<F>::kQuiet;
        result = choose(nan_b & ((bits_b & kQuiet) == 0), bits_b | kQuiet, result);
        result = choose(nan_a & ((bits_a & kQuiet) == 0), bits_a | kQuiet, result);
    }
    return floats_of(result);
}

template <class F> inline F minimum(F a, F b, bool ieee) { return extremum<false>(a, b, ieee); }
template <class F> inline F maximum(F a, F b, bool ieee) { return extremum<true>(a, b, ieee); }

/// v_med3, by the manual's steps: the maximum of the two that are not the largest; with a NaN the minimum of all.
template <class F>
inline F median(F a, F b, F c, bool ieee) {
    const F ab = maximum(a, b, false), ac = maximum(a, c, false), bc = maximum(b, c, false);
    const F most = maximum(ab, c, false);
    const F result = choose(most == a, bc, choose(most == b, ac, ab));
    const auto any_nan = (a != a) | (b != b) | (c != c);
    if (!__builtin_reduce_or(any_nan)) return result;
    return choose(any_nan, minimum(minimum(a, b, ieee), c, ieee), result);
}

/// The exponent as frexp gives it (mantissa in [0.5, 1)), 0 for zero, infinities and NaN.
inline i32v exponent_of(f32v value) {
    // 2^32 lifts every denormal into the normal range.
    const i32v denormal = magnitude(value) < 0x1p-126f;
    const u32v bits = bits_of(choose(denormal, value * 0x1p32f, value)) & 0x7fffffffu;
    const i32v exponent = std::bit_cast<i32v>(bits >> 23) - 126 - (denormal & 32);
    return choose((bits == 0u) | (bits >= 0x7f800000u), i32v(0), exponent);
}

inline i64v exponent_of(f64v value) {
    const i64v denormal = magnitude(value) < 0x1p-1022;
    const u64v bits = bits_of(choose(denormal, value * 0x1p64, value)) & ~(u64{1} << 63);
    const i64v exponent = std::bit_cast<i64v>(bits >> 52) - 1022 - (denormal & 64);
    const i64v none = (bits == 0u) | (bits >= (u64{0x7ff} << 52));
    return exponent & ~none;
}

/// The mantissa that goes with it; zero, infinities and NaN as they are.
inline f32v mantissa_of(f32v value) {
    const i32v denormal = magnitude(value) < 0x1p-126f;
    const u32v bits = bits_of(choose(denormal, value * 0x1p32f, value));
    const u32v rest = bits & 0x7fffffffu;
    const f32v mantissa = floats_of((bits & 0x807fffffu) | 0x3f000000u);
    return choose((rest == 0u) | (rest >= 0x7f800000u), quiet(value), mantissa);
}

inline f64v mantissa_of(f64v value) {
    const i64v denormal = magnitude(value) < 0x1p-1022;
    const u64v bits = bits_of(choose(denormal, value * 0x1p64, value));
    const u64v rest = bits & ~(u64{1} << 63);
    const f64v mantissa = floats_of((bits & 0x800fffffffffffffu) | (u64{0x3fe} << 52));
    return choose((rest == 0u) | (rest >= (u64{0x7ff} << 52)), quiet(value), mantissa);
}

/// 2^exponent for exponents of normal numbers.
inline f64v power_of_two(i64v exponent) { return floats_of(std::bit_cast<u64v>(exponent + 1023) << 52); }

}  // namespace emu
