// SPDX-License-Identifier: MIT
// The loops of MFMA and SMFMAC over rows of the result, 16 columns at a time.
//
// A "plan" says where the products of a row find their factors: plan.a(row, k) and plan.b(row, k) are offsets into the
// unpacked operands, plan.b's for the first of 16 columns. For dense instructions they are constants after unrolling.
#pragma once

#include "../wave.h"
#include "matrix_sum.h"

namespace emu::matrix {

/// C and D. A constant C has no registers.
struct Result {
    u32* registers = nullptr;           // D's first
    const u32* initial = nullptr;       // C's first, or null: `constant`
    u64 constant = 0;

    f32x16 load(int offset) const {
        return initial ? load16<f32x16>(initial + offset) : std::bit_cast<f32x16>(u32x16(static_cast<u32>(constant)));
    }
};

/// `shape` is the instruction's; kProducts of each result are added (K, or K / 2 of a sparse instruction).
template <Shape kShape>
struct Dense {
    static constexpr int kProducts = kShape.k;
    int first_a, first_b;               // lanes of the block's first row and column

    static constexpr int offset(int k) {
        return k % kShape.per_lane() * kLanes + k / kShape.per_lane() * kShape.m * kShape.blocks;
    }
    int a(int row, int k) const { return offset(k) + first_a + row; }
    int b(int, int k) const { return offset(k) + first_b; }
};

template <Shape kShape>
constexpr int result_offset(int row, int column, int block) {
    return kShape.result_register(row, block) * kLanes + kShape.result_lane(row, column, block);
}

/// One result, exactly as the model says.
template <class SumKind, class Plan>
f32 exact_result(const Plan& plan, const Operand16& a, const Operand16& b, int row, int lane, f32 accumulator) {
    Factor left[Plan::kProducts], right[Plan::kProducts];
    for (int k = 0; k < Plan::kProducts; ++k) {
        const int at_a = plan.a(row, k), at_b = plan.b(row, k) + lane;
        left[k] = {a.value[0][at_a], a.exponent[0][at_a]};
        right[k] = {b.value[0][at_b], b.exponent[0][at_b]};
    }
    return exact_sum(left, right, Plan::kProducts, SumKind::kGroup, SumKind::kSplit, accumulator);
}

/// Lanes where a group's largest exponent is beyond what the fast way represents.
template <class Plan>
inline i32x16 doubtful(i32x16 exponent, const Plan& plan, const Operand16& a, int row, int first, int count) {
    i32x16 result = exponent > kLargestExponent;
    const i32x16 small = exponent < kSmallestExponent;
    if (__builtin_reduce_or(small)) {
        bool nothing = true;            // rows of zeros are common (masked attention) and harmless
        for (int k = first; k < first + count; ++k) nothing &= a.value[0][plan.a(row, k)] == 0.0f;
        if (!nothing) result |= small;
    }
    return result;
}

/// `kRows` rows of D from `row` on, 16 columns from `column` on, both within the block; `offsets`: of the rows in D.
template <class SumKind, int kRows, class Plan>
inline void fused_rows(const Plan& plan, const Operand16& a, const Operand16& b, int row, int column, const Result& d,
                       const int* offsets) {
    constexpr int kProducts = Plan::kProducts, kParts = SumKind::kParts;
    constexpr int kGroup = kProducts < SumKind::kGroup ? kProducts : SumKind::kGroup;
    const f32* const values_a = a.value[0];
    const i32* const exponents_a = a.exponent[0];
    const f32* const values_b = b.value[0] + column;
    const i32* const exponents_b = b.exponent[0] + column;
    f32x16 total[kRows];
    i32x16 doubt[kRows];
    for (int r = 0; r < kRows; ++r) {
        total[r] = d.load(offsets[r]);
        doubt[r] = 0;
    }
#pragma clang loop unroll(full)
    for (int first = 0; first < kProducts; first += kGroup) {
        i32x16 exponent[kRows][kParts], sum[kRows][kParts];
        f32x16 scale[kRows][kParts];
        for (int r = 0; r < kRows; ++r)
            for (int part = 0; part < kParts; ++part) {
                exponent[r][part] = -1000;
                sum[r][part] = 0;
            }
#pragma clang loop unroll(full)
        for (int k = first; k < first + kGroup; ++k)
            for (int r = 0; r < kRows; ++r) {
                i32x16& largest = exponent[r][k % kParts];
                const i32x16 both = load16<i32x16>(exponents_b + plan.b(row + r, k)) + exponents_a[plan.a(row + r, k)];
                largest = __builtin_elementwise_max(largest, both);
            }
        for (int r = 0; r < kRows; ++r)
            for (int part = 0; part < kParts; ++part) scale[r][part] = alignment(exponent[r][part]);
#pragma clang loop unroll(full)
        for (int k = first; k < first + kGroup; ++k)
            for (int r = 0; r < kRows; ++r) {
                const f32x16 product = load16<f32x16>(values_b + plan.b(row + r, k)) * values_a[plan.a(row + r, k)];
                sum[r][k % kParts] += __builtin_convertvector(product * scale[r][k % kParts], i32x16);
            }
        for (int r = 0; r < kRows; ++r) {
            i32x16 top = exponent[r][0], all = sum[r][0];
            if constexpr (kParts == 2) {
                top = __builtin_elementwise_max(top, exponent[r][1]);
                const i32x16 first_shift = __builtin_elementwise_min(top - exponent[r][0], i32x16(31));
                const i32x16 second_shift = __builtin_elementwise_min(top - exponent[r][1], i32x16(31));
                all = (all >> first_shift) + (sum[r][1] >> second_shift);
            } else {
                doubt[r] |= doubtful(top, plan, a, row + r, first, kGroup);
            }
            total[r] = accumulate<SumKind::kSplit>(all, top, total[r]);
        }
    }
    for (int r = 0; r < kRows; ++r) {
        if constexpr (kParts == 1) {
            if (__builtin_expect(__builtin_reduce_or(doubt[r]) != 0, 0)) {
                const f32x16 initial = d.load(offsets[r]);
                for (int lane = 0; lane < kChunk; ++lane)
                    if (doubt[r][lane])
                        total[r][lane] = exact_result<SumKind>(plan, a, b, row + r, column + lane, initial[lane]);
            }
        }
        store16(d.registers + offsets[r], total[r]);
    }
}

/// A block with N of 16 or 32. Without inline, so that the many instructions of a shape share it.
template <class SumKind, Shape kShape, class Plan>
[[gnu::noinline]] void fused_block(const Plan& plan, const Operand16& a, const Operand16& b, int block, const Result& d) {
    constexpr int kRows = 4;
    const bool special = a.special || b.special;
    for (int row = 0; row < kShape.m; row += kRows)
        for (int column = 0; column < kShape.n; column += kChunk) {
            int offsets[kRows];
            for (int r = 0; r < kRows; ++r) offsets[r] = result_offset<kShape>(row + r, column, block);
            if (__builtin_expect(!special, 1)) {
                fused_rows<SumKind, kRows>(plan, a, b, row, column, d, offsets);
                continue;
            }
            for (int r = 0; r < kRows; ++r) {
                f32x16 total = d.load(offsets[r]);
                for (int lane = 0; lane < kChunk; ++lane)
                    total[lane] = exact_result<SumKind>(plan, a, b, row + r, column + lane, total[lane]);
                store16(d.registers + offsets[r], total);
            }
        }
}

/// Integers: sums of products are small enough for exact f32 arithmetic; the accumulator wraps.
template <Shape kShape, class Plan>
[[gnu::noinline]] void integer_block(const Plan& plan, const Operand16& a, const Operand16& b, int block, const Result& d) {
    for (int row = 0; row < kShape.m; ++row)
        for (int column = 0; column < kShape.n; column += kChunk) {
            f32x16 sum = 0.0f;
#pragma clang loop unroll(full)
            for (int k = 0; k < Plan::kProducts; ++k)
                sum += load16<f32x16>(b.value[0] + plan.b(row, k) + column) * a.value[0][plan.a(row, k)];
            const int offset = result_offset<kShape>(row, column, block);
            const u32x16 total = std::bit_cast<u32x16>(d.load(offset)) +
                                 std::bit_cast<u32x16>(__builtin_convertvector(sum, i32x16));
            store16(d.registers + offset, total);
        }
}

/// Signed bytes as floats.
inline void unpack_bytes(const u32* registers, int elements, Operand16& operand) {
    for (int element = 0; element < elements; ++element) {
        const i32v words = load<i32v>(registers + element / 4 * kLanes);
        const i32v byte = words << (24 - element % 4 * 8) >> 24;
        store(reinterpret_cast<u32*>(operand.value[element]), __builtin_convertvector(byte, f32v));
    }
    operand.special = false;
}

}  // namespace emu::matrix
