// SPDX-License-Identifier: MIT
// Small floats (f16, bf16, and the 8-bit FNUZ formats of MI300) to and from f32: one value, or 64 lanes at once.
//
// Everything is integer arithmetic, so neither the host's rounding mode nor its treatment of denormals matters, and
// nothing branches on the data; where the CPU converts f16 itself, vectors use that, for the same results. Vectors hold a small float in the low bits of each 32-bit word; on the way in the other
// bits are ignored, on the way out they are zero.
//   f16   1.5.10, bias 15, infinities        bf16  the upper half of an f32
//   fp8   1.4.3, bias 8, largest 240         bf8   1.5.2, bias 16, largest 57344
// fp8 and bf8 have no infinity and no -0: 0x80 is their only NaN.
#pragma once

#include "types.h"
#include "wave.h"

namespace emu {

/// MODE's rounding modes, and a flag for its FP16_OVFL bit: results that overflow become the largest finite number.
enum Rounding : unsigned { kToNearestEven, kUp, kDown, kTowardZero, kClampOverflow = 4 };

/// How `wave` rounds f16 results.
inline unsigned half_rounding(const Wave& wave) { return wave.round64() | (wave.mode >> 23 & 1) << 2; }

#if defined(__F16C__) || defined(__aarch64__)
constexpr bool kHostHasHalf = true;
#else
constexpr bool kHostHasHalf = false;  // the compiler would call a function for each lane
#endif

namespace small {

using f16v = _Float16 __attribute__((ext_vector_type(kLanes)));

// `U` is u32 or u32v, so that one text serves both.

template <class U>
inline U pick(bool condition, U yes, U no) {
    return condition ? yes : no;
}
inline u32v pick(i32v condition, u32v yes, u32v no) {
    const u32v mask = std::bit_cast<u32v>(condition);
    return (yes & mask) | (no & ~mask);
}

inline u32 float_of_int(u32 value) { return as_u32(static_cast<f32>(static_cast<i32>(value))); }
inline u32v float_of_int(u32v value) {
    return std::bit_cast<u32v>(__builtin_convertvector(std::bit_cast<i32v>(value), f32v));
}

/// A magnitude with `kMantissa` bits of mantissa, finite, to f32: denormals by way of an integer conversion.
template <int kMantissa, int kBias, class U>
inline U widen(U magnitude) {
    constexpr u32 kUnit = 128 - kBias - kMantissa;  // exponent field of the smallest denormal, as f32
    const U normal = (magnitude << (23 - kMantissa)) + ((127u - kBias) << 23);
    const U denormal = float_of_int(magnitude) - pick(magnitude == 0u, U(0u), U((127u - kUnit) << 23));
    return pick(magnitude < (1u << kMantissa), denormal, normal);
}

/// What rounding adds below the last bit that stays; `shift` bits go.
template <class U>
inline U increment(U mantissa, U shift, U negative, unsigned rounding) {
    const U all = (U(1u) << shift) - 1u;
    switch (rounding & 3) {
        case kToNearestEven: return (U(1u) << (shift - 1u)) - 1u + ((mantissa >> shift) & 1u);
        case kUp: return all & (negative - 1u);
        case kDown: return all & (0u - negative);
        default: return U(0u);
    }
}

/// Mantissa and number of bits to drop that take the magnitude `bits` of a finite f32 to the small format.
template <int kMantissa, int kBias, class U>
inline void align(U bits, U& mantissa, U& shift) {
    constexpr u32 kDrop = 23 - kMantissa;
    constexpr u32 kNormal = 128 - kBias;  // f32 exponent field of the smallest normal number
    const U exponent = bits >> 23;
    const auto is_normal = exponent >= kNormal;
    const U fraction = bits & 0x7fffffu;
    const U full = fraction | pick(exponent == 0u, U(0u), U(0x800000u));
    mantissa = pick(is_normal, bits - ((127u - kBias) << 23), full);
    shift = pick(is_normal, U(kDrop), (kDrop + kNormal) - exponent);
}

/// Magnitude of a finite f32, rounded; may come out larger than the format's largest.
template <int kMantissa, int kBias, class U>
inline U narrow(U bits, U negative, unsigned rounding) {
    U mantissa, shift;
    align<kMantissa, kBias>(bits, mantissa, shift);
    shift = __builtin_elementwise_min(shift, U(31u));  // beyond: less than half of the smallest, whatever the bits
    return (mantissa + increment(mantissa, shift, negative, rounding)) >> shift;
}

/// The same with `random` (its top bits, as many as f32 has more than the format) added instead.
template <int kMantissa, int kBias, class U>
inline U narrow_stochastic(U bits, U random) {
    U mantissa, shift;
    align<kMantissa, kBias>(bits, mantissa, shift);
    constexpr u32 kDrop = 23 - kMantissa;
    const U kept = __builtin_elementwise_min(shift, U(31u));
    mantissa >>= __builtin_elementwise_min(shift - kept, U(31u));
    return (mantissa + ((random >> (32u - kDrop)) << (kept - kDrop))) >> kept;
}

template <class U>
inline U f32_to_f16_bits(U bits, unsigned rounding) {
    const U magnitude = bits & 0x7fffffffu;
    const U negative = bits >> 31;
    const U rounded = narrow<10, 15>(magnitude, negative, rounding);
    U overflow = U(0x7c00u);  // or the largest finite number, 0x7bff
    if (rounding & kClampOverflow || (rounding & 3) == kTowardZero) overflow = U(0x7bffu);
    else if ((rounding & 3) == kUp) overflow -= negative;
    else if ((rounding & 3) == kDown) overflow -= 1u - negative;
    U result = pick(rounded >= 0x7c00u, overflow, rounded);
    result = pick(magnitude == 0x7f800000u, U(0x7c00u), result);
    result = pick(magnitude > 0x7f800000u, 0x7e00u | ((magnitude >> 13) & 0x3ffu), result);
    return result | negative << 15;
}

template <class U>
inline U f16_to_f32_bits(U half) {
    const U magnitude = half & 0x7fffu;
    const U special = 0x7f800000u | (magnitude << 13) | pick(magnitude > 0x7c00u, U(0x400000u), U(0u));
    return pick(magnitude >= 0x7c00u, special, widen<10, 15>(magnitude)) | (half & 0x8000u) << 16;
}

template <class U>
inline U f32_to_bf16_bits(U bits) {
    const U rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return pick((bits & 0x7fffffffu) > 0x7f800000u, (bits >> 16) | 0x40u, rounded);
}

/// Overflow becomes NaN, or the largest number; infinities and NaN become NaN; what rounds to -0 is 0.
template <class U>
inline U finish_8_bits(U bits, U rounded, bool clamp_overflow) {
    const U magnitude = bits & 0x7fffffffu;
    const U finite = pick(rounded > 0x7fu, U(clamp_overflow ? 0x7fu : 0u), rounded);
    const U sign = pick(finite == 0u, U(0u), (bits >> 31) << 7);
    U result = finite | sign;
    if (!clamp_overflow) result = pick(rounded > 0x7fu, U(0x80u), result);
    return pick(magnitude >= 0x7f800000u, U(0x80u), result);
}

template <int kMantissa, int kBias, class U>
inline U f32_to_8_bits(U bits, bool clamp_overflow) {
    const U magnitude = __builtin_elementwise_min(bits & 0x7fffffffu, U(0x7f7fffffu));
    return finish_8_bits(bits, narrow<kMantissa, kBias>(magnitude, U(0u), kToNearestEven), clamp_overflow);
}

template <int kMantissa, int kBias, class U>
inline U f32_to_8_bits_stochastic(U bits, U random, bool clamp_overflow) {
    const U magnitude = __builtin_elementwise_min(bits & 0x7fffffffu, U(0x7f7fffffu));
    return finish_8_bits(bits, narrow_stochastic<kMantissa, kBias>(magnitude, random), clamp_overflow);
}

template <int kMantissa, int kBias, class U>
inline U f32_from_8_bits(U byte) {
    const U value = widen<kMantissa, kBias>(byte & 0x7fu) | (byte & 0x80u) << 24;
    return pick((byte & 0xffu) == 0x80u, U(0x7fc00000u), value);
}

}  // namespace small

/// Exact; a signalling NaN comes out quiet.
inline f32 f16_to_f32(u16 value) { return as_f32(small::f16_to_f32_bits(u32{value})); }
inline f32v f16_to_f32(u32v value) {
    if constexpr (kHostHasHalf) {
        const u16v halves = __builtin_convertvector(value, u16v);
        return __builtin_convertvector(std::bit_cast<small::f16v>(halves), f32v);
    } else {
        return std::bit_cast<f32v>(small::f16_to_f32_bits(value));
    }
}

/// Correctly rounded as `rounding` (MODE's numbering, optionally with kClampOverflow) says; NaNs keep their top bits.
inline u16 f32_to_f16(f32 value, unsigned rounding) {
    return static_cast<u16>(small::f32_to_f16_bits(as_u32(value), rounding));
}
inline u32v f32_to_f16(f32v value, unsigned rounding) {
    // The host rounds as its own mode says, which follows MODE, but may be that of another type.
    if (kHostHasHalf && rounding == kToNearestEven && __builtin_flt_rounds() == 1) {
        const auto halves = std::bit_cast<u16v>(__builtin_convertvector(value, small::f16v));
        return __builtin_convertvector(halves, u32v);
    }
    return small::f32_to_f16_bits(std::bit_cast<u32v>(value), rounding);
}

inline f32 bf16_to_f32(u16 value) { return as_f32(u32{value} << 16); }
inline f32v bf16_to_f32(u32v value) { return std::bit_cast<f32v>(value << 16); }

/// To nearest, ties to even.
inline u16 f32_to_bf16(f32 value) { return static_cast<u16>(small::f32_to_bf16_bits(as_u32(value))); }
inline u32v f32_to_bf16(f32v value) { return small::f32_to_bf16_bits(std::bit_cast<u32v>(value)); }

/// Exact; NaN is 0x7fc00000.
inline f32 fp8_to_f32(u8 value) { return as_f32(small::f32_from_8_bits<3, 8>(u32{value})); }
inline f32v fp8_to_f32(u32v value) { return std::bit_cast<f32v>(small::f32_from_8_bits<3, 8>(value)); }
inline f32 bf8_to_f32(u8 value) { return as_f32(small::f32_from_8_bits<2, 16>(u32{value})); }
inline f32v bf8_to_f32(u32v value) { return std::bit_cast<f32v>(small::f32_from_8_bits<2, 16>(value)); }

/// To nearest, ties to even. Overflow is NaN unless MODE.FP16_OVFL (`clamp_overflow`) asks for the largest number:
/// code that wants saturation without it clamps first (as HIP's own conversion does, with v_med3_f32).
inline u8 f32_to_fp8(f32 value, bool clamp_overflow = false) {
    return static_cast<u8>(small::f32_to_8_bits<3, 8>(as_u32(value), clamp_overflow));
}
inline u32v f32_to_fp8(f32v value, bool clamp_overflow = false) {
    return small::f32_to_8_bits<3, 8>(std::bit_cast<u32v>(value), clamp_overflow);
}
inline u8 f32_to_bf8(f32 value, bool clamp_overflow = false) {
    return static_cast<u8>(small::f32_to_8_bits<2, 16>(as_u32(value), clamp_overflow));
}
inline u32v f32_to_bf8(f32v value, bool clamp_overflow = false) {
    return small::f32_to_8_bits<2, 16>(std::bit_cast<u32v>(value), clamp_overflow);
}

/// Stochastic rounding: the top 20 (fp8) or 21 (bf8) bits of `random` are added below the result's last bit, and what
/// is left there is cut off, so that a value is rounded up with the probability of what is cut off.
inline u8 f32_to_fp8_stochastic(f32 value, u32 random, bool clamp_overflow = false) {
    return static_cast<u8>(small::f32_to_8_bits_stochastic<3, 8>(as_u32(value), random, clamp_overflow));
}
inline u32v f32_to_fp8_stochastic(f32v value, u32v random, bool clamp_overflow = false) {
    return small::f32_to_8_bits_stochastic<3, 8>(std::bit_cast<u32v>(value), random, clamp_overflow);
}
inline u8 f32_to_bf8_stochastic(f32 value, u32 random, bool clamp_overflow = false) {
    return static_cast<u8>(small::f32_to_8_bits_stochastic<2, 16>(as_u32(value), random, clamp_overflow));
}
inline u32v f32_to_bf8_stochastic(f32v value, u32v random, bool clamp_overflow = false) {
    return small::f32_to_8_bits_stochastic<2, 16>(std::bit_cast<u32v>(value), random, clamp_overflow);
}

/// f64 to f32 rounded to odd: inexact results have their last bit set, so that rounding once more, to something at
/// least two bits shorter, is correct in every mode. For magnitudes from 2^-126 to 2^127, infinities and NaN.
inline f32v round_to_odd(f64v value) {
    const f32v near = __builtin_convertvector(value, f32v);
    const f64v back = __builtin_convertvector(near, f64v);
    const i32v inexact = __builtin_convertvector(back != value, i32v);
    const i32v too_large =
        __builtin_convertvector(__builtin_elementwise_abs(back) > __builtin_elementwise_abs(value), i32v);
    const i32v bits = std::bit_cast<i32v>(near) + too_large;
    return std::bit_cast<f32v>(bits | (inexact & 1));
}

/// a * b + c of f16 numbers (low halves), rounded once. f64 holds every sum that is near a boundary between two f16
/// numbers exactly: the product has 22 bits, and an addend that lies further away than 53 of them decides nothing
/// (directed rounding relies on the host's mode, which follows MODE while vector arithmetic runs).
inline u32v fma_f16(u32v a, u32v b, u32v c, unsigned rounding) {
    const f64v product = __builtin_convertvector(f16_to_f32(a) * f16_to_f32(b), f64v);
    return f32_to_f16(round_to_odd(product + __builtin_convertvector(f16_to_f32(c), f64v)), rounding);
}

}  // namespace emu
