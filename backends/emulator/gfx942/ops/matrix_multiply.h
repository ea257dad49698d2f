// SPDX-License-Identifier: MIT
// The loops of MFMA and SMFMAC over rows of the result, 16 columns at a time.
//
// A "plan" says where the products of a row find their factors: plan.a(row, k) and plan.b(row, k) are offsets into the
// unpacked operands, plan.b's for the first column.
#pragma once

#include <utility>

#include "../wave.h"
#include "matrix_sum.h"

namespace emu::matrix {

using i8x64 = i8 __attribute__((ext_vector_type(64)));
using i16x32 = i16 __attribute__((ext_vector_type(32)));

/// f(0), f(1), … with constants, so that arrays of vectors indexed by them are registers.
template <int kCount, class F>
[[gnu::always_inline]] inline void repeat(F f) {
    [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) __attribute__((always_inline)) {
        (f(std::integral_constant<int, kIndex>{}), ...);
    }(std::make_integer_sequence<int, kCount>{});
}
#define EMU_INLINE __attribute__((always_inline))

/// C and D. A constant C has no registers.
struct Result {
    u32* registers = nullptr;      // D's first
    const u32* initial = nullptr;  // C's first, or null: `constant`
    u64 constant = 0;

    f32x16 load(int offset) const {
        return initial ? load16<f32x16>(initial + offset) : std::bit_cast<f32x16>(u32x16(static_cast<u32>(constant)));
    }
};

template <Shape kShape>
struct Dense {
    static constexpr int kProducts = kShape.k;
    int first_a, first_b;  // lanes of the block's first row and column

    static constexpr int lane(int k) { return k / kShape.per_lane() * kShape.m * kShape.blocks; }
    static constexpr int offset(int k) { return k % kShape.per_lane() * kLanes + lane(k); }
    /// Of the word that holds the exponent of k, `per_word` in a word.
    static constexpr int word(int k, int per_word) { return k % kShape.per_lane() / per_word * kLanes + lane(k); }
    int a(int row, int k) const { return offset(k) + first_a + row; }
    int b(int, int k) const { return offset(k) + first_b; }
};

template <Shape kShape>
constexpr int result_offset(int row, int column, int block) {
    return kShape.result_register(row, block) * kLanes + kShape.result_lane(row, column, block);
}

/// One result, exactly as the model says.
template <class SumKind, class Plan>
f32 exact_result(const Plan& plan, const Unpacked& a, const Unpacked& b, int row, int column, f32 accumulator) {
    Factor left[Plan::kProducts], right[Plan::kProducts];
    for (int k = 0; k < Plan::kProducts; ++k) {
        const f32 value_a = a.value[0][plan.a(row, k)], value_b = b.value[0][plan.b(row, k) + column];
        left[k] = {value_a, exponent_of(value_a, a.smallest)};
        right[k] = {value_b, exponent_of(value_b, b.smallest)};
    }
    return exact_sum(left, right, Plan::kProducts, SumKind::kGroup, SumKind::kSplit, accumulator);
}

/// Lanes where a group's largest exponent is beyond what the fast way represents.
template <class Plan>
inline i32x16 doubtful(
    i32x16 exponent, const Plan& plan, const Unpacked& a, const Unpacked& b, int row, int column, int first,
    int count) {
    i32x16 result = exponent > kLargestExponent;
    const i32x16 small = exponent < kSmallestExponent;
    if (__builtin_expect(__builtin_reduce_or(small) != 0, 0)) {
        // Products that are all zero are common (tails, masked attention) and harmless.
        i32x16 something = 0;
        for (int k = first; k < first + count; ++k)
            if (a.value[0][plan.a(row, k)] != 0.0f)
                something |= load16<f32x16>(b.value[0] + plan.b(row, k) + column) != 0.0f;
        result |= small & something;
    }
    return result;
}

// --- largest exponents ----------------------------------------------------------------------------------------------

/// Exponents of products and their maximum, on the elements of a word: `Lane` is a vector of them.
template <class Lane>
inline i32x16 largest(i32x16 most, i32x16 a, i32x16 b) {
    const Lane left = std::bit_cast<Lane>(a), right = std::bit_cast<Lane>(b);
    Lane both;
    if constexpr (sizeof(left[0]) == 1)  // two exponents of zeros do not fit; anything below -126 is as good as another
        both = __builtin_elementwise_add_sat(left, right);
    else both = left + right;
    return std::bit_cast<i32x16>(__builtin_elementwise_max(std::bit_cast<Lane>(most), both));
}

/// `parts`: the largest exponent of the whole group, or of its even and of its odd products.
template <class SumKind, int kParts>
inline void finish_exponents(i32x16 most, i32x16 (&parts)[kParts]) {
    if constexpr (SumKind::kBits == 32) {
        parts[0] = most;
    } else if constexpr (SumKind::kBits == 16) {
        const i16x32 folded = __builtin_elementwise_max(std::bit_cast<i16x32>(most), std::bit_cast<i16x32>(most >> 16));
        parts[0] = std::bit_cast<i32x16>(folded) << 16 >> 16;
    } else {
        const i8x64 folded = __builtin_elementwise_max(std::bit_cast<i8x64>(most), std::bit_cast<i8x64>(most >> 16));
        const i32x16 words = std::bit_cast<i32x16>(folded);
        parts[0] = words << 24 >> 24;
        parts[1] = words << 16 >> 24;
    }
}

template <int kBits> struct ExponentLane {
    using Type = i8x64;
};
template <> struct ExponentLane<16> {
    using Type = i16x32;
};
template <> struct ExponentLane<32> {
    using Type = i32x16;
};

/// Steps 3 and 4 for a group's parts, which are in units of 2^(exponent - 24).
template <class SumKind, int kParts>
inline f32x16 add_parts(const i32x16 (&sum)[kParts], const i32x16 (&exponent)[kParts], f32x16 accumulator) {
    if constexpr (kParts == 1) {
        return accumulate<false>(sum[0], exponent[0] - kCutBits, exponent[0], accumulator);
    } else {
        const i32x16 top = __builtin_elementwise_max(exponent[0], exponent[1]);
        const i32x16 even = sum[0] >> __builtin_elementwise_min(top - exponent[0], i32x16(31));
        const i32x16 odd = sum[1] >> __builtin_elementwise_min(top - exponent[1], i32x16(31));
        return accumulate<true>(even + odd, top - kCutBits, top, accumulator);
    }
}

// --- dense ----------------------------------------------------------------------------------------------------------

/// `kRows` rows of D from `row` on, 16 columns from `column` on; `offsets`: of those rows in D.
template <class SumKind, Shape kShape, int kRows>
inline void dense_rows(
    const Dense<kShape>& plan, const Unpacked& a, const Unpacked& b, int row, int column, const Result& d,
    const int* offsets) {
    using Plan = Dense<kShape>;
    constexpr int kProducts = kShape.k, kParts = SumKind::kParts, kPerWord = 32 / SumKind::kBits;
    constexpr int kGroup = kProducts < SumKind::kGroup ? kProducts : SumKind::kGroup;
    const f32* const values_a = a.value[0] + plan.first_a + row;
    const f32* const values_b = b.value[0] + plan.first_b + column;
    const i32* const exponents_a = reinterpret_cast<const i32*>(a.exponent[0]) + plan.first_a + row;
    const i32* const exponents_b = reinterpret_cast<const i32*>(b.exponent[0]) + plan.first_b + column;
    f32x16 total[kRows];
    i32x16 doubt[kRows];
    repeat<kRows>([&](auto r) EMU_INLINE {
        total[r] = d.load(offsets[r]);
        doubt[r] = 0;
    });
    repeat<kProducts / kGroup>([&](auto group) EMU_INLINE {
        constexpr int kFirst = group * kGroup;
        i32x16 exponent[kRows][kParts], sum[kRows][kParts], most[kRows];
        f32x16 scale[kRows][kParts];
        repeat<kRows>([&](auto r) EMU_INLINE { most[r] = std::bit_cast<i32x16>(u32x16(0x80808080u)); });
        repeat<kGroup / kPerWord>([&](auto word) EMU_INLINE {
            constexpr int kOffset = Plan::word(kFirst + word * kPerWord, kPerWord);
            const i32x16 right = load16<i32x16>(exponents_b + kOffset);
            repeat<kRows>([&](auto r) EMU_INLINE {
                using Lane = ExponentLane<SumKind::kBits>::Type;
                most[r] = largest<Lane>(most[r], i32x16(exponents_a[kOffset + r]), right);
            });
        });
        repeat<kRows>([&](auto r) EMU_INLINE {
            finish_exponents<SumKind>(most[r], exponent[r]);
            repeat<kParts>([&](auto part) EMU_INLINE {
                scale[r][part] = alignment(exponent[r][part]);
                sum[r][part] = 0;
            });
        });
        repeat<kGroup>([&](auto k) EMU_INLINE {
            constexpr int kOffset = Plan::offset(kFirst + k), kPart = k % kParts;
            const f32x16 right = load16<f32x16>(values_b + kOffset);
            repeat<kRows>([&](auto r) EMU_INLINE {
                const f32x16 product = right * values_a[kOffset + r];
                sum[r][kPart] += __builtin_convertvector(product * scale[r][kPart], i32x16);
            });
        });
        repeat<kRows>([&](auto r) EMU_INLINE {
            if constexpr (kParts == 1)
                doubt[r] |= doubtful(exponent[r][0], plan, a, b, row + r, column, kFirst, kGroup);
            total[r] = add_parts<SumKind>(sum[r], exponent[r], total[r]);
        });
    });
    for (int r = 0; r < kRows; ++r) {
        if (__builtin_expect(kParts == 1 && __builtin_reduce_or(doubt[r]) != 0, 0)) {
            const f32x16 initial = d.load(offsets[r]);
            for (int lane = 0; lane < kChunk; ++lane)
                if (doubt[r][lane])
                    total[r][lane] = exact_result<SumKind>(plan, a, b, row + r, column + lane, initial[lane]);
        }
        store16(d.registers + offsets[r], total[r]);
    }
}

/// All of a block by the exact way.
template <class SumKind, Shape kShape, class Plan>
[[gnu::noinline]] void exact_block(const Plan& plan, const Unpacked& a, const Unpacked& b, int block, const Result& d) {
    for (int row = 0; row < kShape.m; ++row)
        for (int column = 0; column < kShape.n; ++column) {
            const int offset = result_offset<kShape>(row, column, block);
            const f32 initial = as_f32(d.initial ? d.initial[offset] : static_cast<u32>(d.constant));
            d.registers[offset] = as_u32(exact_result<SumKind>(plan, a, b, row, column, initial));
        }
}

/// Without inline, so that the instructions of a shape share it.
template <class SumKind, Shape kShape>
[[gnu::noinline]] void dense_block(
    const Dense<kShape>& plan, const Unpacked& a, const Unpacked& b, int block, const Result& d) {
    constexpr int kRows = 4;
    for (int row = 0; row < kShape.m; row += kRows)
        for (int column = 0; column < kShape.n; column += kChunk) {
            int offsets[kRows];
            for (int r = 0; r < kRows; ++r) offsets[r] = result_offset<kShape>(row + r, column, block);
            dense_rows<SumKind, kShape, kRows>(plan, a, b, row, column, d, offsets);
        }
}

/// Integers: sums of products are small enough for exact f32 arithmetic; the accumulator wraps.
template <Shape kShape, class Plan>
[[gnu::noinline]] void integer_block(
    const Plan& plan, const Unpacked& a, const Unpacked& b, int block, const Result& d) {
    for (int row = 0; row < kShape.m; ++row)
        for (int column = 0; column < kShape.n; column += kChunk) {
            f32x16 sum = 0.0f;
#pragma clang loop unroll(full)
            for (int k = 0; k < Plan::kProducts; ++k)
                sum += load16<f32x16>(b.value[0] + plan.b(row, k) + column) * a.value[0][plan.a(row, k)];
            const int offset = result_offset<kShape>(row, column, block);
            const u32x16 total =
                std::bit_cast<u32x16>(d.load(offset)) + std::bit_cast<u32x16>(__builtin_convertvector(sum, i32x16));
            store16(d.registers + offset, total);
        }
}

/// Signed bytes as floats.
inline void unpack_bytes(const u32* registers, int elements, Unpacked& operand) {
    for (int element = 0; element < elements; ++element) {
        const i32v words = load<i32v>(registers + element / 4 * kLanes);
        const i32v byte = words << (24 - element % 4 * 8) >> 24;
        store(reinterpret_cast<u32*>(operand.value[element]), __builtin_convertvector(byte, f32v));
    }
}

}  // namespace emu::matrix
