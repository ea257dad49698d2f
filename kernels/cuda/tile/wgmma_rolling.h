// SPDX-License-Identifier: MIT
// The walk along K of a consumer whose tile is multiplied in pieces: while one piece is promoted, the next one's products run.
//
// A piece is 64 rows by kPieceN columns of a K block. Two sets of partial sums take turns from piece to piece, across K blocks,
// too. A whole K block of 128 x 128 outputs has registers for one set of partial sums of a slice; pieces of half its columns
// have registers for two, at the price of reading the rows twice from shared memory.
#pragma once

#include "ptx/ldmatrix.h"
#include "ptx/warp_uniform.h"
#include "ptx/wgmma.h"

template <class Shape, class Consumer, class Sums>
struct RollingWalk {
    using Scales = typename Consumer::Scales;
    static constexpr int kPieces = Shape::kSlices * Shape::kColumnPieces;   // of a K block
    static constexpr int kRegisters = Shape::kPieceN / 2;
    static_assert(kPieces % 2 == 0, "the sets of partial sums take turns within a K block");
    using Partial = float[kRegisters];
    Consumer& consumer;
    Sums& sums;
    int blocks, runs;

    /// Start the products of a piece of the stage at `filled`.
    template <int kPiece>
    __device__ __forceinline__ void multiply(Partial& partial) {
        constexpr int kSlice = kPiece / Shape::kColumnPieces, kColumns = kPiece % Shape::kColumnPieces;
        const uint32_t tile = warp_uniform(consumer.memory.tile(consumer.filled.stage));
        const uint64_t a = wgmma_operand(tile + (consumer.who.group * Shape::kSlices + kSlice) * (64 * Shape::kK));
        const uint64_t b = wgmma_operand(tile + Shape::kRowBytes + kColumns * (Shape::kPieceN * Shape::kK));
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < Shape::kK / 32; ++step) {
            Wgmma<Shape::kPieceN>::product(partial, a + 2 * step, b + 2 * step, step > 0);
        }
        wgmma_commit();
    }

    /// total += scale * partial.
    template <int kPiece>
    __device__ __forceinline__ void promote(const Partial& partial, const Scales& scales) {
        constexpr int kSlice = kPiece / Shape::kColumnPieces, kColumns = kPiece % Shape::kColumnPieces;
#pragma unroll
        for (int i = 0; i < kRegisters; ++i) {
            const int at = kColumns * kRegisters + i, run = at / (Shape::kRun / 2);
            const float common = Shape::kN <= Shape::kRun || run < runs ? scales.weight[0] : scales.weight[1];
#if defined(X_NO_PROMOTE)
            if (i % 32) continue;
#endif
            float& total = sums.total[kSlice][at];
            total = fmaf(scales.token[kSlice][i % 4 / 2] * common, partial[i], total);
        }
    }

    /// Start the piece kPiece of this K block, then promote the one before it.
    template <int kPiece>
    __device__ __forceinline__ void step(Partial& starting, Partial& done, const Scales& scales) {
        multiply<kPiece>(starting);
        wgmma_wait<1>();
        wgmma_results(done);
        promote<kPiece - 1>(done, scales);
    }

    uint32_t rows[4][4];

    template <int kSlice>
    __device__ __forceinline__ void fetch() {
        const int lane = consumer.who.lane;
        const uint32_t tile = consumer.memory.tile(consumer.filled.stage) +
                              (consumer.who.group * Shape::kSlices + kSlice) * (64 * Shape::kK) +
                              (consumer.who.warp * 16 + lane % 16) * 128 + ((lane / 16) ^ (lane % 8)) * 16;
#pragma unroll
        for (int step = 0; step < 4; ++step) ldmatrix_x4(rows[step], tile ^ (32 * step));
    }

    template <int kPiece>
    __device__ __forceinline__ void start(Partial& partial) {
        constexpr int kColumns = kPiece % Shape::kColumnPieces;
        const uint32_t tile = warp_uniform(consumer.memory.tile(consumer.filled.stage));
        const uint64_t b = wgmma_operand(tile + Shape::kRowBytes + kColumns * (Shape::kPieceN * Shape::kK));
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < Shape::kK / 32; ++step) {
            Wgmma<Shape::kPieceN>::product(partial, rows[step], b + 2 * step, step > 0);
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void run_rows() {
        if (blocks == 0) return;
        Scales scales;
        consumer.begin(scales);
        fetch<0>();
        for (int left = blocks; left > 0; --left) {
            Partial even, odd;
            start<0>(even);
            start<1>(odd);
            if constexpr (Shape::kSlices == 2) {
                wgmma_wait<1>();
                wgmma_results(even);
                promote<0>(even, scales);
                wgmma_wait<0>();
                wgmma_results(odd);
                fetch<1>();
                promote<1>(odd, scales);
                start<kPieces - 2>(even);
                start<kPieces - 1>(odd);
            }
            consumer.filled.advance();
            wgmma_wait<1>();
            wgmma_results(even);
            promote<kPieces - 2>(even, scales);
            wgmma_wait<0>();
            wgmma_results(odd);
            consumer.free_stage();
            const Scales before = scales;
            if (left > 1) {
                consumer.begin(scales);
                fetch<0>();
            }
            promote<kPieces - 1>(odd, before);
        }
    }

    __device__ __forceinline__ void run() {
        if (blocks == 0) return;
        Partial even, odd;
        Scales scales, before;
        consumer.begin(scales);
        multiply<0>(even);
        int piece = 1;   // the next one to start
        for (; piece + kPieces - 1 < kPieces * blocks; piece += kPieces) {
            pieces(even, odd, scales);
            before = scales;
            consumer.begin(scales);
            multiply<0>(even);
            wgmma_wait<1>();
            wgmma_results(odd);
            consumer.free_stage();
            promote<kPieces - 1>(odd, before);
        }
        if (piece < kPieces * blocks) {   // always; without the question ptxas takes the loop for one that touches running products
            pieces(even, odd, scales);
            wgmma_wait<0>();
            wgmma_results(odd);
            consumer.free_stage();
            promote<kPieces - 1>(odd, scales);
        } else {
            wgmma_wait<0>();
            wgmma_results(even);
            promote<0>(even, scales);
        }
    }

    /// From the start of piece 1 to the promotion of the last but one.
    __device__ __forceinline__ void pieces(Partial& even, Partial& odd, const Scales& scales) {
        step<1>(odd, even, scales);
        if constexpr (kPieces == 4) {
            step<2>(even, odd, scales);
            step<3>(odd, even, scales);
        }
        consumer.filled.advance();
    }
};

template <class Shape, class Consumer, class Sums>
__device__ __forceinline__ void sum_rolling(Consumer& consumer, Sums& sums, int blocks, int runs) {
    RollingWalk<Shape, Consumer, Sums> walk{consumer, sums, blocks, runs};
#if defined(X_RS)
    if constexpr (Shape::kColumnPieces == 2) return walk.run_rows();
#endif
    walk.run();
}
