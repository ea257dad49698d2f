// SPDX-License-Identifier: MIT
// How the matrix unit of CDNA3 adds products to an accumulator.
//
// Source of the facts: Xie, Wang, Yang, Yang, "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores",
// arXiv 2511.10909, and its published model (github.com/microsoft/MMA-Sim), which the authors found equal to an MI300X
// bit for bit on more than a million tests. The hardware's maker publishes none of it.
//
//   f32, f64   one fused multiply-add after the other, k ascending
//   xf32       operands cut to 10 bits of mantissa; then as below in groups of 4 products
//   f16, bf16  groups of 8 products (4 where K is 4), k ascending, each group added to the accumulator as follows
//     1. products are exact, and each has the exponent e_a + e_b (its significand is in [1, 4): not normalised)
//     2. they are aligned to the largest exponent E and cut toward zero below 2^(E-24); their sum S is exact
//     3. with M the larger of E and the accumulator's exponent: S is rounded down (to minus infinity) to a multiple of
//        2^(M-31), the accumulator to a multiple of 2^(M-24)
//     4. their sum is rounded to f32, to nearest even
//   fp8, bf8   groups of 16 products; steps 1 and 2 for the products of even and of odd k apart, with exponents E0 and
//     E1; both sums are rounded down to multiples of 2^(max(E0, E1)-24) and added; then 3 and 4, but an accumulator whose
//     exponent is less than M-25 counts as zero (otherwise a small negative one would count as -2^(M-24))
//   A zero's exponent is -126. Denormals count in full, of inputs and of results, whatever MODE says; so does rounding.
//   Infinities and NaN follow IEEE 754; a single product of 2^128 or more is infinite. The model leaves the bits of a NaN
//   open: here every NaN result is 0x7fc00000 (f64: 0x7ff8000000000000).
//
// SMFMAC is not in the paper. We take it to add its K/2 products as the dense instruction with half the K adds its own.
#pragma once

#include "matrix_numbers.h"

namespace emu::matrix {

constexpr u32 kNan32 = 0x7fc00000u;
constexpr u64 kNan64 = u64{0x7ff80000} << 32;

/// How products are grouped.
template <int kProducts, bool kEvenOdd>
struct Sum {
    static constexpr int kGroup = kProducts;
    static constexpr bool kSplit = kEvenOdd;
    // 8-bit formats and f16 never leave what the fast way can represent.
    static constexpr int kParts = kEvenOdd ? 2 : 1;
};
using SumEight = Sum<16, true>;
using SumSixteen = Sum<8, false>;
using SumXf32 = Sum<4, false>;

/// The model word for word, for any values: `count` products in groups of `group`, `split` for even and odd.
struct Factor {
    f32 value;
    i32 exponent;
};
f32 exact_sum(const Factor* a, const Factor* b, int count, int group, bool split, f32 accumulator);

// --- the same for 16 results at once --------------------------------------------------------------------------------
// Equal to exact_sum() where no operand is infinite or NaN and the largest exponent of each group is at most
// kLargestExponent and at least kSmallestExponent, or all its products are zero: then a product in f32 is exact, or so
// small that it is cut to nothing anyway.

constexpr int kLargestExponent = 125, kSmallestExponent = -96;

/// 2^(24 - exponent): units of the aligned products.
inline f32x16 alignment(i32x16 exponent) {
    const i32x16 within = __builtin_elementwise_max(__builtin_elementwise_min(exponent, i32x16(126)), i32x16(-100));
    return std::bit_cast<f32x16>((151 - within) << 23);
}

inline f64x16 power_of_two16(i32x16 exponent) {
    return std::bit_cast<f64x16>((__builtin_convertvector(exponent, i64x16) + 1023) << 52);
}

/// Steps 3 and 4: `sum` in units of 2^(exponent - 24).
template <bool kDropSmall>
inline f32x16 accumulate(i32x16 sum, i32x16 exponent, f32x16 accumulator) {
    const i32x16 bits = std::bit_cast<i32x16>(accumulator);
    const i32x16 field = bits >> 23 & 0xff;
    const i32x16 own = __builtin_elementwise_max(field, i32x16(1)) - 127;
    const i32x16 top = __builtin_elementwise_max(exponent, own);
    const f64x16 products = __builtin_elementwise_floor(__builtin_convertvector(sum, f64x16) *
                                                        power_of_two16(exponent - top + 7));
    f32x16 addend = accumulator;
    if constexpr (kDropSmall) addend = own < top - 25 ? f32x16(0.0f) : addend;
    const f64x16 added = __builtin_elementwise_floor(__builtin_convertvector(addend, f64x16) * power_of_two16(24 - top));
    const f32x16 result = __builtin_convertvector((products + added * 128.0) * power_of_two16(top - 31), f32x16);
    const i32x16 kept = (bits & 0x7fffff) == 0 ? bits : i32x16(kNan32);      // of an infinite or NaN accumulator
    return std::bit_cast<f32x16>(field == 0xff ? kept : std::bit_cast<i32x16>(result));
}

}  // namespace emu::matrix
