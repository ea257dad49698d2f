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

inline i32 exponent_of(f32 value, i32 smallest) {
    if (value == 0) return kZeroExponent;
    const i32 exponent = static_cast<i32>(as_u32(value) >> 23 & 0xff) - 127;
    return exponent > smallest ? exponent : smallest;
}

inline i32v exponents_of(f32v value, i32 smallest) {
    const i32v field = std::bit_cast<i32v>(std::bit_cast<u32v>(value) >> 23 & 0xffu);
    const i32v exponent = __builtin_elementwise_max(field - 127, i32v(smallest));
    return value == 0.0f ? i32v(kZeroExponent) : exponent;
}

// Formats. values() takes an element in the top bits of each word, with other elements below it; it is right for finite
// numbers only. exponents() and special() (infinite or NaN) do all elements of a word at once, each in its own place.
// exact() is right for everything, one at a time.

using i8x256 = i8 __attribute__((ext_vector_type(4 * kLanes)));
using i16x128 = i16 __attribute__((ext_vector_type(2 * kLanes)));

template <int kMantissa, int kBias>
struct Eight {
    using Packed = i8x256;
    static constexpr int kBits = 8, kSmallest = 1 - kBias;
    // The exponent field moves to where f32 has its own, and the bias is corrected by an exact multiplication, which
    // takes care of denormals, too.
    static f32v values(i32v top) {
        constexpr f32 kScale = std::bit_cast<f32>((127u + 127u - kBias) << 23);
        constexpr i32 kKept = static_cast<i32>(0x80000000u | 0x7fu << (23 - kMantissa));
        return std::bit_cast<f32v>(top >> (1 + kMantissa) & kKept) * kScale;
    }
    static Packed exponents(Packed code) {
        const Packed magnitude = code & i8{0x7f};
        const Packed field = __builtin_elementwise_max(magnitude >> Packed(i8{kMantissa}), Packed(i8{1}));
        return magnitude == Packed(i8{0}) ? Packed(i8{kZeroExponent}) : field - i8{kBias};
    }
    static Packed special(Packed code) { return std::bit_cast<Packed>(code == Packed(i8{-128})); }
    static f32 exact(u32 code) { return as_f32(small::f32_from_8_bits<kMantissa, kBias>(code)); }
};
using Fp8 = Eight<3, 8>;
using Bf8 = Eight<2, 16>;

struct F16 {
    using Packed = i16x128;
    static constexpr int kBits = 16, kSmallest = -14;
    static f32v values(i32v top) {
        constexpr i32 kKept = static_cast<i32>(0x80000000u | 0x7fffu << 13);
        return std::bit_cast<f32v>(top >> 3 & kKept) * 0x1p112f;
    }
    static Packed exponents(Packed code) {
        const Packed magnitude = code & i16{0x7fff};
        const Packed field = __builtin_elementwise_max(magnitude >> 10, Packed(i16{1}));
        return magnitude == Packed(i16{0}) ? Packed(i16{kZeroExponent}) : field - i16{15};
    }
    static Packed special(Packed code) { return std::bit_cast<Packed>((code & i16{0x7fff}) >= Packed(i16{0x7c00})); }
    static f32 exact(u32 code) { return f16_to_f32(static_cast<u16>(code)); }
};

struct Bf16 {
    using Packed = i16x128;
    static constexpr int kBits = 16, kSmallest = -126;
    static f32v values(i32v top) { return std::bit_cast<f32v>(top & static_cast<i32>(0xffff0000u)); }
    static Packed exponents(Packed code) {
        return __builtin_elementwise_max((code & i16{0x7fff}) >> 7, Packed(i16{1})) - i16{127};
    }
    static Packed special(Packed code) { return std::bit_cast<Packed>((code & i16{0x7fff}) >= Packed(i16{0x7f80})); }
    static f32 exact(u32 code) { return bf16_to_f32(static_cast<u16>(code)); }
};

/// An f32 of which the matrix unit sees 19 bits; the others are cut off.
struct Xf32 {
    using Packed = i32v;
    static constexpr int kBits = 32, kSmallest = -126;
    static constexpr i32 kKept = ~0x1fff;
    static f32v values(i32v top) { return std::bit_cast<f32v>(top & kKept); }
    static Packed exponents(Packed code) {
        return __builtin_elementwise_max((code & 0x7fffffff) >> 23, Packed(1)) - 127;
    }
    static Packed special(Packed code) { return (code & 0x7f800000) == 0x7f800000; }
    static f32 exact(u32 code) {
        const bool nan = (code & 0x7fffffffu) > 0x7f800000u;
        return as_f32(nan ? 0x7fc00000u : code & static_cast<u32>(kKept));
    }
};

/// An operand's elements: element e of lane l is value[e][l]; its exponent lies in the words of `exponent` as the element
/// does in those of the registers.
struct Unpacked {
    static constexpr int kMost = 16;
    alignas(64) f32 value[kMost][kLanes];
    alignas(64) u32 exponent[4][kLanes];
    i32 smallest = 0;      // the format's smallest normal exponent
    bool special = false;  // some element is infinite or NaN: exponents mean nothing then
};

template <class Format>
inline void unpack(const u32* registers, int elements, Unpacked& operand) {
    using Packed = Format::Packed;
    constexpr int kPerWord = 32 / Format::kBits;
    i32v special = 0;
    for (int word = 0; word < elements / kPerWord; ++word) {
        const i32v words = load<i32v>(registers + word * kLanes);
        const Packed codes = std::bit_cast<Packed>(words);
        special |= std::bit_cast<i32v>(Format::special(codes));
        store(operand.exponent[word], std::bit_cast<u32v>(Format::exponents(codes)));
        for (int part = 0; part < kPerWord; ++part)
            store(
                reinterpret_cast<u32*>(operand.value[word * kPerWord + part]),
                Format::values(words << (32 - (part + 1) * Format::kBits)));
    }
    operand.smallest = Format::kSmallest;
    operand.special = __builtin_reduce_or(special) != 0;
    if (__builtin_expect(operand.special, 0)) {
        for (int element = 0; element < elements; ++element)
            for (int lane = 0; lane < kLanes; ++lane) {
                const u32 word = registers[element / kPerWord * kLanes + lane];
                const u32 shifted = word >> (element % kPerWord * Format::kBits);
                operand.value[element][lane] = Format::exact(shifted & static_cast<u32>((u64{1} << Format::kBits) - 1));
            }
    }
}

}  // namespace emu::matrix
