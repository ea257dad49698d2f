// SPDX-License-Identifier: MIT
// Products of small matrices as NVIDIA's tensor cores round them, bit for bit.
//
// The rule: all products of an instruction and the accumulator are addends. Each is cut towards zero at `fraction` bits below
// the largest exponent among them (products' exponents are added, not normalised; the least is -133). The sum of what is left
// is exact, and is rounded once. Source of the rule: MMA-Sim (Microsoft, 2025); recorded results of an H200 follow it in every
// bit for Hopper. Ada's (sm_89) is MMA-Sim's alone: nobody here has an L4.
#pragma once

#include "types.h"

namespace emu::ptx {

enum class Format : u8 { F16, BF16, TF32, E4M3, E5M2 };

constexpr int kMostK = 32;
constexpr i16 kNothing = -10000;  // the exponent of a zero: it is never the largest

/// A number of a short format: its value, and its exponent as the tensor cores see it.
struct Number {
    f32 value = 0;
    i16 exponent = kNothing;
    bool special = false;  // an infinity or NaN
};
Number number_of(Format, u32 word);

/// The same, without branches for formats of 16 and 19 bits: operands of these come by the thousand.
template <Format kFormat>
Number number_as(u32 word) {
    if constexpr (kFormat == Format::E4M3 || kFormat == Format::E5M2) {
        return number_of(kFormat, word);
    } else {
        constexpr bool kHalf = kFormat == Format::F16;
        constexpr u32 kTop = kHalf ? 31 : 255;
        const u32 field = (kHalf ? word >> 10 : kFormat == Format::BF16 ? word >> 7 : word >> 23) & kTop;
        const u32 magnitude = kHalf ? word & 0x7fffu : kFormat == Format::BF16 ? word & 0x7fffu : word & 0x7fffe000u;
        Number result;
        if constexpr (kHalf) {
            // The exponent is moved by a multiplication, which also takes subnormals.
            const f32 finite = as_f32(magnitude << 13) * 0x1p112f;
            const u32 sign = (word & 0x8000u) << 16, top = 0x7f800000u | (magnitude & 0x3ffu) << 13;
            result.value = as_f32(sign | (field == kTop ? top : as_u32(finite)));
        } else {
            result.value = as_f32(kFormat == Format::BF16 ? word << 16 : word & ~0x1fffu);
        }
        result.special = field == kTop;
        const auto exponent = static_cast<i16>(static_cast<i32>(field ? field : 1) - (kHalf ? 15 : 127));
        result.exponent = magnitude && field != kTop ? exponent : kNothing;
        return result;
    }
}

using i16v = i16 __attribute__((ext_vector_type(kLanes)));

/// 32 numbers at once. False: one of them is an infinity or NaN, and what is written means nothing.
template <Format kFormat>
bool decode(u32v word, f32v& value, i16v& exponent) {
    constexpr bool kByte = kFormat == Format::E4M3 || kFormat == Format::E5M2, kHalf = kFormat == Format::F16;
    constexpr int kFraction = kFormat == Format::E4M3 ? 3 : kByte ? 2 : kHalf ? 10 : kFormat == Format::BF16 ? 7 : 23;
    constexpr int kBias = kFormat == Format::E4M3 ? 7 : kByte || kHalf ? 15 : 127;
    constexpr u32 kMagnitude = kByte ? 0x7f : kFormat == Format::TF32 ? 0x7fffe000u : 0x7fff;
    constexpr u32 kSpecial = kFormat == Format::E4M3   ? 0x7f
                             : kByte                   ? 0x7c
                             : kHalf                   ? 0x7c00
                             : kFormat == Format::BF16 ? 0x7f80
                                                       : 0x7f800000u;
    constexpr u32 kSign = kByte ? 0x80 : kFormat == Format::TF32 ? 0x80000000u : 0x8000;
    constexpr int kUp = kByte ? 24 : kFormat == Format::TF32 ? 0 : 16;
    const u32v magnitude = word & kMagnitude, sign = (word & kSign) << kUp;
    if constexpr (kByte || kHalf) {
        // The exponent is moved by a multiplication, which also takes subnormals.
        const f32v finite = bits<f32v>(magnitude << (23 - kFraction)) * (kBias == 7 ? 0x1p120f : 0x1p112f);
        value = bits<f32v>(bits<u32v>(finite) | sign);
    } else {
        value = bits<f32v>(sign | magnitude << (kFormat == Format::BF16 ? 16 : 0));
    }
    const i32v field = bits<i32v>(__builtin_elementwise_max(magnitude >> kFraction, u32v(1u))) - kBias;
    exponent = convert<i16v>(choose<i32v>(bits<i32v>(magnitude == 0u), i32v(kNothing), field));
    return to_mask(bits<i32v>(magnitude >= kSpecial)) == 0;
}

/// 16 rows of A of up to 32 numbers, spread over the lanes that need them: lane l has row l / 4, and row l / 4 + 8.
struct Rows {
    f32v value[kMostK][2];
    i16v exponent[kMostK][2];
    bool special = false;
    /// `numbers[k][row]`
    void spread(const f32 numbers[][16], const i16 exponents[][16], int count);
};

/// 8 columns of B: lane l has columns 2 (l % 4) and 2 (l % 4) + 1, which lie as 0 2 4 6 1 3 5 7.
struct Columns {
    alignas(32) f32 value[kMostK][8];
    alignas(16) i16 exponent[kMostK][8];
    bool special = false;
    static int place(int column) { return column / 2 + 4 * (column % 2); }
};

enum class Result : u8 {
    F32,
    F32Short,
    F16
};  // F32Short: 13 fraction bits; F16 to nearest even, the others towards zero

struct Rule {
    int fraction = 25;
    Result result = Result::F32;
};

/// accumulator[i], lane l: row l / 4 + 8 (i / 2), column 2 (l % 4) + i % 2, of a 16 x 8 matrix; A B is added, over numbers
/// `from` to `from + count` of each row. F16 accumulators are given and returned as f32 with the values of f16.
void multiply(const Rows& a, const Columns& b, f32v accumulator[4], const Rule&, int from, int count);

}  // namespace emu::ptx
