// SPDX-License-Identifier: MIT
// Block-scaled FP8 GEMM on CDNA3 for operands with K outermost, with LDS in two halves: while a workgroup multiplies one
// half of a K block it puts the next one into LDS, and the one after that is on its way into registers. One barrier per half.
//
// Transposing takes vector instructions, multiplying the matrix core. So they take turns, a quarter of each at a time: while
// one wave of a SIMD transposes, the other one multiplies. The compiler would put all of one kind first.
#pragma once

#include "tile/buffered_scales.h"
#include "tile/fp8_k_outermost_halves.h"

/// One wave's operands of two half K blocks, and its products of the current K block, not yet scaled.
template <class Shape>
struct WaveProducts {
    static constexpr int kQuarters = Shape::kTilesN;

    f32x4 product[kQuarters][Shape::kTilesM];
    Fp8HalfOperand a[2][Shape::kTilesM], b[2][kQuarters];
    int base_a, base_b;  // where this lane reads its first row of each operand

    /// As if a K block of zeros had been multiplied but for its last quarter.
    __device__ __forceinline__ explicit WaveProducts(const WaveTile<Shape>& wave) : product{}, a{}, b{} {
        base_a = fp8_half_base(wave.row(0));
        base_b = fp8_half_base(Shape::kM + wave.first_n + interleaved_row(0, lane_id() % 16));
    }

    __device__ __forceinline__ void read_b(int half, const uint8_t* panel, int quarter) {
        b[half][quarter] = read_fp8_half(panel, base_b, interleaved_row(quarter, 0));
    }

    /// All of A, and of B what comes first.
    __device__ __forceinline__ void read(int half, const uint8_t* panel) {
        read_b(half, panel, 0);
#pragma unroll
        for (int tile = 0; tile < Shape::kTilesM; ++tile)
            a[half][tile] = read_fp8_half(panel, base_a, column_row(tile, 0));
    }

    /// product = or += this half of the K block, for one column of tiles.
    __device__ __forceinline__ void multiply(int half, int quarter) {
        if (half == 0) {
#pragma unroll
            for (int tile = 0; tile < Shape::kTilesM; ++tile) product[quarter][tile] = f32x4{};
        }
        multiply_half_block(b[half][quarter], a[half], product[quarter]);
    }

    /// sum += scale[tile] * product.
    __device__ __forceinline__ void add(
        int quarter, const float (&scale)[Shape::kTilesM], WaveTile<Shape>& wave) const {
#pragma unroll
        for (int tile = 0; tile < Shape::kTilesM; ++tile)
            wave.sum[tile][0][quarter] += product[quarter][tile] * scale[tile];
    }
};

/// Columns come in multiples of 16. The grid and `kSplit` as for block_scaled_gemm, but for fewer workgroups than tiles: each
/// works on every gridDim.x-th tile. Half blocks follow each other over the ends of tiles: the first ones of the next tile are
/// on their way while this one's results leave.
template <class Shape, bool kSplit>
__global__ void __launch_bounds__(Shape::kThreads, 2)
    block_scaled_overlapped(BlockScaledGemm problem, int blocks_per_part) {
    using Loader = HalfBlockLoader<Shape::kM, Shape::kN, Shape::kThreads>;
    constexpr int kQuarters = WaveProducts<Shape>::kQuarters, kLast = kQuarters - 1;
    __shared__ Fp8HalfPanel<Loader::kRows> lds[2];

    const int tiles = ((problem.m + Shape::kM - 1) / Shape::kM) * ((problem.n + Shape::kN - 1) / Shape::kN);
    int index = static_cast<int>(blockIdx.x);
    GemmPart work = gemm_part<Shape>(problem, blocks_per_part, index);
    Loader loader(problem);
    loader.turn_to(problem, work.first_row, work.first_column, true);
    HeldQuad even, odd;  // half blocks on their way
    loader.at(2 * work.begin);
    loader.load(0, even), loader.load(1, even);
    loader.at(2 * work.begin + 1);
    loader.load(0, odd), loader.load(1, odd);
#pragma unroll
    for (int quarter = 0; quarter < kQuarters; ++quarter) loader.store(quarter, even, lds[0]);
    __syncthreads();
    for (;;) {
        index += static_cast<int>(gridDim.x);
        const bool more = index < tiles;
        GemmPart next = work;
        if (more) next = gemm_part<Shape>(problem, blocks_per_part, index);
        WaveTile<Shape> wave;
        WaveProducts<Shape> products(wave);
        BufferedScales<Shape> scales(problem, wave);
        scales.turn_to(problem, work.first_row, work.first_column);
        float scale[Shape::kTilesM] = {};
        // Multiply one half of a K block but for its last quarter, while `held` goes into LDS and `coming` sets out.
        const auto take_turns = [&](int which, const HeldQuad& held, HeldQuad& coming) {
#pragma unroll
            for (int quarter = 0; quarter < kLast; ++quarter) {
                products.read_b(which, lds[which].bytes, quarter + 1);
                loader.store(quarter, held, lds[1 - which]);
                if (quarter == kLast - 1) loader.store(kLast, held, lds[1 - which]);
                if (quarter < 2) loader.load(quarter, coming);
                schedule_barrier();
                products.multiply(which, quarter);
                // Quarters are whole after their second half, the last one after the next block's first reads.
                if (which == 0 && quarter == 0) products.add(kLast, scale, wave);
                if (which == 1 && quarter > 0) products.add(quarter - 1, scale, wave);
                schedule_barrier();
            }
            __syncthreads();
        };
        int block = work.begin;
        do {  // no part is empty
            const bool last = block + 1 == work.end;
            if (last) loader.turn_to(problem, next.first_row, next.first_column, more);
            const int half = last ? 2 * next.begin : 2 * block + 2;
            products.read(0, lds[0].bytes);
            loader.at(half);
            schedule_barrier();
            products.multiply(1, kLast);  // of the K block before, while operands arrive
            scales.load(problem, block);
            schedule_barrier();
            take_turns(0, odd, even);
            products.read(1, lds[1].bytes);
            loader.at(half + 1);
            schedule_barrier();
            products.multiply(0, kLast);
            scales.products(scale);
            schedule_barrier();
            take_turns(1, even, odd);
            products.add(kLast - 1, scale, wave);
        } while (++block < work.end);
        products.multiply(1, kLast);
        products.add(kLast, scale, wave);
        store_aligned(ResultPlace<Shape, kSplit>(problem, work, wave), wave);
        if (!more) return;
        work = next;
    }
}
