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

/// How products are grouped, and how many bits an element has.
template <int kProducts, int kElementBits>
struct Sum {
    static constexpr int kGroup = kProducts, kBits = kElementBits;
    static constexpr bool kSplit = kElementBits == 8;  // even and odd products apart
    static constexpr int kParts = kSplit ? 2 : 1;
};
using SumEight = Sum<16, 8>;
using SumSixteen = Sum<8, 16>;
using SumXf32 = Sum<4, 32>;

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
constexpr int kCutBits = 24;  // what steps 1 and 2 keep below the largest exponent

inline f32x16 power_of_two(i32x16 exponent) { return std::bit_cast<f32x16>((exponent + 127) << 23); }

/// 2^(24 - exponent): into units of the aligned products.
inline f32x16 alignment(i32x16 exponent) {
    const i32x16 within = __builtin_elementwise_max(__builtin_elementwise_min(exponent, i32x16(126)), i32x16(-100));
    return power_of_two(kCutBits - within);
}

/// The accumulator rounded down to a multiple of 2^(its exponent + above - 24), on its bits. `minus_unit` is that, negative.
template <bool kDropSmall>
inline i32x16 round_down(i32x16 bits, i32x16 above, i32x16 minus_unit) {
    const i32x16 dropped = __builtin_elementwise_min(__builtin_elementwise_max(above - 1, i32x16(0)), i32x16(24));
    const i32x16 low = (1 << dropped) - 1;
    const i32x16 negative = bits >> 31;
    const i32x16 rounded = (bits + (low & negative)) & ~low;  // away from zero where negative
    // With no bit left, what remains is 0 or the unit.
    i32x16 rest = negative & ((bits << 1) != 0) & minus_unit;
    if constexpr (kDropSmall) rest &= above <= 25;
    return above > 24 ? rest : rounded;
}

/// Steps 3 and 4: the products' sum is `sum` * 2^`unit`, their exponent `exponent`.
template <bool kDropSmall>
inline f32x16 accumulate(i32x16 sum, i32x16 unit, i32x16 exponent, f32x16 accumulator) {
    const i32x16 bits = std::bit_cast<i32x16>(accumulator);
    const i32x16 field = bits >> 23 & 0xff;
    const i32x16 own = __builtin_elementwise_max(field, i32x16(1)) - 127;
    const i32x16 minus_unit = (exponent + (127 - kCutBits)) << 23 | static_cast<i32>(0x80000000u);
    const f32x16 addend = std::bit_cast<f32x16>(round_down<kDropSmall>(bits, exponent - own, minus_unit));
    const i32x16 last = __builtin_elementwise_max(exponent, own) - 31;  // of the bits that products keep
    const i32x16 excess = __builtin_elementwise_min(__builtin_elementwise_max(last - unit, i32x16(0)), i32x16(31));
    const i32x16 scale = __builtin_elementwise_max(__builtin_elementwise_max(last, unit), i32x16(-126));
    const f64x16 products =
        __builtin_convertvector(sum >> excess, f64x16) * __builtin_convertvector(power_of_two(scale), f64x16);
    const f32x16 result = __builtin_convertvector(products + __builtin_convertvector(addend, f64x16), f32x16);
    const i32x16 kept = (bits & 0x7fffff) == 0 ? bits : i32x16(kNan32);  // of an infinite or NaN accumulator
    return std::bit_cast<f32x16>(field == 0xff ? kept : std::bit_cast<i32x16>(result));
}

}  // namespace emu::matrix
