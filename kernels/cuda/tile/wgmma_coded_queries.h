// SPDX-License-Identifier: MIT
// Queries of the MLA decode over e4m3 codes on wgmma: as fp16 in shared memory, in the order the codes have as operands.
#pragma once

#include <cstdint>

#include "fp8.h"
#include "ptx/mma_16bit.h"
#include "ptx/mul_16bit.h"
#include "ptx/tma.h"
#include "tile/coded_latent_shape.h"
#include "tile/swizzle.h"
#include "tile/wide_rows.h"

/// Sixteen threads' view of a row: 32 latent columns each, and 4 rotary ones.
struct CodedQueryRow {
    uint4 four[4];
    uint2 rotary;

    __device__ __forceinline__ void load(const uint8_t* row, int part) {
#pragma unroll
        for (int i = 0; i < 4; ++i) four[i] = *reinterpret_cast<const uint4*>(row + part * 64 + i * 16);
        rotary = *reinterpret_cast<const uint2*>(row + CodedRow::kLatent * 2 + part * 8);
    }

    /// The row divided by a power of two, latent columns as fp16, rotary ones as bf16, all exact, in panels of 64 columns: of 16
    /// latent ones first 0, 1, 4, 5, 8, ..., then 2, 3, 6, 7, ...
    template <class Shape, class Memory>
    __device__ __forceinline__ void store(const Memory& memory, int row, int part) const {
        const uint32_t words[16] = {four[0].x, four[0].y, four[0].z, four[0].w, four[1].x, four[1].y, four[1].z, four[1].w,
                                    four[2].x, four[2].y, four[2].z, four[2].w, four[3].x, four[3].y, four[3].z, four[3].w};
        float largest = 0.0f;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            largest = fmaxf(largest, fabsf(float_from_bits(words[i] << 16)));
            largest = fmaxf(largest, fabsf(float_from_bits(words[i] & 0xffff0000u)));
        }
        const uint32_t last_words[2] = {rotary.x, rotary.y};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            largest = fmaxf(largest, fabsf(float_from_bits(last_words[i] << 16)));
            largest = fmaxf(largest, fabsf(float_from_bits(last_words[i] & 0xffff0000u)));
        }
#pragma unroll
        for (int step = 1; step < 16; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
        const float by = float_from_bits(query_exponent(largest));
        uint32_t halves[16];
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            halves[i] = Fp16::pack(float_from_bits(words[i] << 16) * by, float_from_bits(words[i] & 0xffff0000u) * by);
        }
        if (row >= Shape::kRows) return;
        uint8_t* const panel = memory.at(memory.query(part / 2));
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int word = i / 2 * 8 + i % 2;
            *reinterpret_cast<uint4*>(panel + Swizzle<8>::offset(row, part % 2 * 4 + i)) =
                make_uint4(halves[word], halves[word + 2], halves[word + 4], halves[word + 6]);
        }
        uint8_t* const last = memory.at(memory.query(Shape::kPanels - 1));
        *reinterpret_cast<uint2*>(last + Swizzle<8>::offset(row, part / 2) + part % 2 * 8) =
            make_uint2(multiply_bfloats(rotary.x, Bf16::pack(by, by)), multiply_bfloats(rotary.y, Bf16::pack(by, by)));
        if (part == 0) memory.factors()[row] = power_over(0, by);
    }
};

/// A piece's queries from `q` to shared memory, by the first kThreads threads of the block. They meet afterwards.
template <class Shape, int kThreads, class Memory>
__device__ __forceinline__ void load_coded_queries(const Memory& memory, const uint8_t* q) {
    constexpr int kEach = kThreads / 16, kPasses = (Shape::kRows + kEach - 1) / kEach;
    const int thread = recomputed_thread(), part = thread % 16;
    // Two passes' loads are under way at a time.
#pragma unroll
    for (int first = 0; first < kPasses; first += 2) {
        CodedQueryRow rows[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = min((first + i) * kEach + thread / 16, Shape::kRows - 1);
            if (first + i < kPasses) rows[i].load(q + row * (CodedRow::kWidth * 2), part);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (first + i < kPasses) rows[i].template store<Shape>(memory, (first + i) * kEach + thread / 16, part);
        }
    }
    fence_async_shared();
}
