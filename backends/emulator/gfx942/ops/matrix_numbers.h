// SPDX-License-Identifier: MIT
// Elements of matrix operands as the matrix arithmetic sees them: an exact f32 and the exponent that alignment goes by.
//
// The exponent is not quite that of the value: a denormal has the format's smallest normal exponent, because that is
// what its significand is counted from, and zero has -126 in every format (MMA-Sim, see matrix_sum.h).
#pragma once

#include "../float16.h"
#include "matrix_layout.h"

namespace emu::matrix {

constexpr int kZeroExponent = -126;

/// `code` holds one element a lane in its low bits, other bits zero; `special` gets set bits where it is infinite or NaN.
template <int kMinimum>
inline i32v exponent_of_bits(u32v f32_bits) {
    const i32v field = std::bit_cast<i32v>(f32_bits >> 23 & 0xffu);
    const i32v exponent = __builtin_elementwise_max(field - 127, i32v(kMinimum));
    return (f32_bits << 1) == 0u ? i32v(kZeroExponent) : exponent;
}

template <int kMantissa, int kBias>
struct Eight {
    static constexpr int kBits = 8;
    static void decode(u32v code, f32v& value, i32v& exponent, i32v& special) {
        const u32v magnitude = code & 0x7fu;
        const i32v nan = code == 0x80u;
        // The exponent field is put where f32 has its own, and the bias is corrected by an exact multiplication, which
        // also takes care of denormals.
        constexpr f32 kScale = std::bit_cast<f32>((127u + 127u - kBias) << 23);
        const f32v scaled = std::bit_cast<f32v>(code >> 7 << 31 | magnitude << (23 - kMantissa)) * kScale;
        const i32v field = std::bit_cast<i32v>(magnitude >> kMantissa);
        const i32v normal = __builtin_elementwise_max(field, i32v(1)) - kBias;
        value = std::bit_cast<f32v>(std::bit_cast<i32v>(scaled) | (nan & 0x7fc00000));
        exponent = magnitude == 0u ? i32v(kZeroExponent) : normal;
        special |= nan;
    }
};
using Fp8 = Eight<3, 8>;
using Bf8 = Eight<2, 16>;

struct F16 {
    static constexpr int kBits = 16;
    static void decode(u32v code, f32v& value, i32v& exponent, i32v& special) {
        const u32v magnitude = code & 0x7fffu;
        const i32v unusual = magnitude >= 0x7c00u;
        const f32v scaled = std::bit_cast<f32v>(code >> 15 << 31 | magnitude << 13) * 0x1p112f;
        const i32v field = std::bit_cast<i32v>(magnitude >> 10);
        const i32v normal = __builtin_elementwise_max(field, i32v(1)) - 15;
        value = std::bit_cast<f32v>(std::bit_cast<i32v>(scaled) | (unusual & 0x7f800000));
        exponent = magnitude == 0u ? i32v(kZeroExponent) : normal;
        special |= unusual;
    }
};

struct Bf16 {
    static constexpr int kBits = 16;
    static void decode(u32v code, f32v& value, i32v& exponent, i32v& special) {
        value = std::bit_cast<f32v>(code << 16);
        exponent = exponent_of_bits<-126>(code << 16);
        special |= (code & 0x7f80u) == 0x7f80u;
    }
};

/// An f32 of which the matrix unit sees 19 bits; the others are cut off.
struct Xf32 {
    static constexpr int kBits = 32;
    static void decode(u32v code, f32v& value, i32v& exponent, i32v& special) {
        const u32v nan = (code & 0x7fffffffu) > 0x7f800000u ? u32v(0x400000u) : u32v(0u);   // stays one when cut
        const u32v cut = (code | nan) & ~0x1fffu;
        value = std::bit_cast<f32v>(cut);
        exponent = exponent_of_bits<-126>(cut);
        special |= (code & 0x7f800000u) == 0x7f800000u;
    }
};

/// An operand's elements: element e of lane l is [e][l].
struct Operand16 {
    static constexpr int kMost = 16;
    alignas(64) f32 value[kMost][kLanes];
    alignas(64) i32 exponent[kMost][kLanes];
    bool special = false;
};

template <class Format>
inline void unpack(const u32* registers, int elements, Operand16& operand) {
    constexpr int kPerWord = 32 / Format::kBits;
    constexpr u32 kMask = Format::kBits == 32 ? ~0u : (1u << Format::kBits % 32) - 1u;
    i32v special = 0;
    for (int first = 0; first < elements; first += kPerWord) {
        const u32v words = load<u32v>(registers + first / kPerWord * kLanes);
        for (int part = 0; part < kPerWord; ++part) {
            f32v value;
            i32v exponent;
            Format::decode(words >> (part * Format::kBits) & kMask, value, exponent, special);
            store(reinterpret_cast<u32*>(operand.value[first + part]), value);
            store(reinterpret_cast<u32*>(operand.exponent[first + part]), exponent);
        }
    }
    operand.special = __builtin_reduce_or(special) != 0;
}

}  // namespace emu::matrix
