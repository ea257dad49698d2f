// SPDX-License-Identifier: MIT
// What a consumer warpgroup does with a K block: multiply in the tensor cores, then add scale * partial sums in fp32.
#pragma once

#include "ptx/cluster.h"
#include "ptx/load_shared.h"
#include "ptx/mbarrier.h"
#include "ptx/named_barrier.h"
#include "ptx/wgmma.h"
#include "tile/wgmma_outermost.h"
#include "tile/wgmma_shape.h"
#include "tile/wgmma_work.h"

/// Who a consumer thread is, and which barriers it uses.
struct Consumer {
    int group, warp, lane;   // consumer warpgroup, warp in it, lane

    /// The first of a slice's rows this thread holds, relative to the tile; the other is row_step further.
    template <class Shape>
    __device__ __forceinline__ int row(int slice) const {
        return (group * Shape::kSlices + slice) * 64 + warp * 16 + lane / 4 * (Shape::kRowsOutermost ? 2 : 1);
    }
};

template <class Shape>
constexpr int row_step = Shape::kRowsOutermost ? 1 : 8;

constexpr int kGroupBarrier = 1;   // + group: the threads of one warpgroup
constexpr int kTurnBarrier = 4;    // + group: that warpgroup's turn
constexpr int kAllBarrier = 6;     // all consumers
constexpr int kReadyBarrier = 7;   // the block: the mbarriers can be used

/// Scales of a K block with tokens as rows: two per slice of the thread, and one or two of the weights.
template <class Shape>
struct RowScales {
    float token[Shape::kSlices][2], weight[2];

    __device__ __forceinline__ void load(const float* scales, const Consumer& who) {
#pragma unroll
        for (int slice = 0; slice < Shape::kSlices; ++slice) {
            token[slice][0] = scales[who.row<Shape>(slice)];
            token[slice][1] = scales[who.row<Shape>(slice) + row_step<Shape>];
        }
        weight[0] = scales[Shape::kTokens];
        weight[1] = scales[Shape::kTokens + 1];
    }

    /// The same by address. Columns of a single run have one weight only.
    __device__ __forceinline__ void load(uint32_t scales, const Consumer& who) {
        const uint32_t mine = scales + who.row<Shape>(0) * 4;
#pragma unroll
        for (int slice = 0; slice < Shape::kSlices; ++slice) {
            token[slice][0] = load_shared(mine + slice * 256);
            token[slice][1] = load_shared(mine + slice * 256 + row_step<Shape> * 4);
        }
        weight[0] = load_shared(scales + Shape::kTokens * 4);
        if constexpr (Shape::kN > Shape::kRun) weight[1] = load_shared(scales + Shape::kTokens * 4 + 4);
    }

    /// total += scale * partial. The first `runs` runs of columns belong to the first group of weights.
    __device__ __forceinline__ void promote(
        float (&total)[Shape::kN / 2], const float (&partial)[Shape::kN / 2], int slice, int runs) const {
        constexpr int kRegisters = Shape::kRun / 2;   // of one run
#pragma unroll
        for (int run = 0; run < Shape::kN / Shape::kRun; ++run) {
            const float common = Shape::kN <= Shape::kRun || run < runs ? weight[0] : weight[1];
            const float upper = token[slice][0] * common, lower = token[slice][1] * common;
#pragma unroll
            for (int i = run * kRegisters; i < (run + 1) * kRegisters; ++i) {
                total[i] = fmaf(i % 4 < 2 ? upper : lower, partial[i], total[i]);
            }
        }
    }
};

/// Scales of a K block with tokens as columns: one for each of the thread's columns, and one of the weights.
template <class Shape>
struct ColumnScales {
    float token[Shape::kN / 4], weight;

    __device__ __forceinline__ void load(const float* scales, const Consumer& who) {
#pragma unroll
        for (int i = 0; i < Shape::kN / 8; ++i) {
            const float2 two = *reinterpret_cast<const float2*>(scales + 8 * i + who.lane % 4 * 2);
            token[2 * i] = two.x;
            token[2 * i + 1] = two.y;
        }
        weight = scales[Shape::kTokens];
    }

    __device__ __forceinline__ void promote(
        float (&total)[Shape::kN / 2], const float (&partial)[Shape::kN / 2], int, int) const {
#pragma unroll
        for (int i = 0; i < Shape::kN / 2; ++i) {
            total[i] = fmaf(token[i / 4 * 2 + i % 2] * weight, partial[i], total[i]);
        }
    }
};

template <bool kTokensAreRows, class Shape>
struct ScalesOf;
template <class Shape>
struct ScalesOf<true, Shape> { using Type = RowScales<Shape>; };
template <class Shape>
struct ScalesOf<false, Shape> { using Type = ColumnScales<Shape>; };

/// Sums of one tile in a thread's registers.
template <class Shape>
struct WgmmaSums {
    float total[Shape::kSlices][Shape::kN / 2];
};

/// Runs of a tile's columns that belong to its first group of weights.
template <class Shape>
__device__ __forceinline__ int runs_of(const WgmmaWork& work) {
    return (128 - work.column % 128) / Shape::kRun;
}

/// A consumer warpgroup's walk along K.
template <class Shape>
struct WgmmaConsumer {
    using Scales = typename ScalesOf<Shape::kTokensAreRows, Shape>::Type;
    using Partial = float[Shape::kN / 2];

    const WgmmaMemory<Shape>& memory;
    const Consumer& who;
    RingPosition<Shape::kStages> filled;   // the next K block to multiply
    RingPosition<Shape::kStages> freed;    // the next one to hand back to the producer

    /// Start partial = rows of one slice * columns of the stage at `filled`.
    __device__ __forceinline__ void multiply(Partial& partial, int slice) {
        const uint32_t tile = memory.tile(filled.stage);
        const uint64_t a = wgmma_operand(tile + (who.group * Shape::kSlices + slice) * (64 * Shape::kK));
        const uint64_t b = wgmma_operand(tile + Shape::kRowBytes);
        OutermostFragments<Shape::kK / 32> rows;
        if constexpr (Shape::kRowsOutermost) {
            rows.load(outermost_rows(tile, who.group * Shape::kSlices + slice, who.warp, who.lane));
        }
        if constexpr (Shape::kTurns) named_barrier_sync(kTurnBarrier + who.group, 256);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < Shape::kK / 32; ++step) {
            if constexpr (Shape::kRowsOutermost) {
                Wgmma<Shape::kN>::product(partial, rows.k32[step], b + 2 * step, step > 0);
            } else {
                Wgmma<Shape::kN>::product(partial, a + 2 * step, b + 2 * step, step > 0);
            }
        }
        wgmma_commit();
        if constexpr (Shape::kTurns) named_barrier_arrive(kTurnBarrier + (who.group ^ 1), 256);
    }

    /// Wait for the stage at `filled` and read its scales.
    __device__ __forceinline__ void begin(Scales& scales) {
        mbarrier_wait(memory.full(filled.stage), filled.parity);
        scales.load(memory.scales(filled.stage), who);
    }

    /// This warp has read the stage at `freed` for the last time.
    __device__ __forceinline__ void free_stage() {
        __syncwarp();
        if constexpr (Shape::kPair == 2) {
            // Both blocks' producers write here, so both must know. Lane i tells block i.
            if (who.lane < 2) mbarrier_arrive_cluster(map_shared(memory.empty(freed.stage), who.lane));
        } else {
            if (who.lane == 0) mbarrier_arrive(memory.empty(freed.stage));
        }
        freed.advance();
    }

    /// All K blocks of `work`, each multiplied and promoted before the next.
    __device__ __forceinline__ void one_by_one(WgmmaSums<Shape>& sums, int blocks, int runs) {
        for (int block = 0; block < blocks; ++block) {
            Scales scales;
            begin(scales);
#pragma unroll
            for (int slice = 0; slice < Shape::kSlices; ++slice) {
                Partial partial;
                multiply(partial, slice);
                wgmma_wait<0>();
                wgmma_results(partial);
                if (slice == Shape::kSlices - 1) free_stage();
                scales.promote(sums.total[slice], partial, slice, runs);
            }
            filled.advance();
        }
    }

    /// All K blocks, the next one's products running while one is promoted.
    __device__ __forceinline__ void overlapped(WgmmaSums<Shape>& sums, int blocks, int runs) {
        if (blocks == 0) return;
        Partial even, odd;
        Scales even_scales, odd_scales;
        const auto start = [&](Partial& partial, Scales& scales) {
            begin(scales);
            multiply(partial, 0);
            filled.advance();
        };
        const auto finish = [&](Partial& partial, const Scales& scales) {
            wgmma_results(partial);
            free_stage();
            scales.promote(sums.total[0], partial, 0, runs);
        };
        start(even, even_scales);
        int block = 1;
        for (; block + 1 < blocks; block += 2) {
            start(odd, odd_scales);
            wgmma_wait<1>();
            finish(even, even_scales);
            start(even, even_scales);
            wgmma_wait<1>();
            finish(odd, odd_scales);
        }
        if (block < blocks) {
            start(odd, odd_scales);
            wgmma_wait<1>();
            finish(even, even_scales);
            wgmma_wait<0>();
            finish(odd, odd_scales);
        } else {
            wgmma_wait<0>();
            finish(even, even_scales);
        }
    }

    __device__ __forceinline__ void sum(WgmmaSums<Shape>& sums, const WgmmaWork& work) {
#pragma unroll
        for (int slice = 0; slice < Shape::kSlices; ++slice) {
#pragma unroll
            for (int i = 0; i < Shape::kN / 2; ++i) sums.total[slice][i] = 0.0f;
        }
        const int runs = runs_of<Shape>(work);
        if constexpr (Shape::kPartials == 2) overlapped(sums, work.blocks, runs);
        else if constexpr (Shape::kRowsOutermost && Shape::kSlices == 1) sum_rows_ahead<Shape>(*this, sums, work.blocks, runs);
        else one_by_one(sums, work.blocks, runs);
    }
};
