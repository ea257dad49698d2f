// SPDX-License-Identifier: MIT
// MLA decode of 16 or 32 rows on wgmma (small M): the sum over a cluster's two blocks, the producers, and the kernel.
#pragma once

#include "mla/call.h"
#include "mla/small_m_mainloop.h"
#include "mla/small_m_shape.h"
#include "mla/throttle.h"
#include "mla/wgmma_producer.h"
#include "online_softmax.h"
#include "ptx/cluster.h"
#include "ptx/launch_dependency.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/mbarrier.h"
#include "ptx/mma.h"
#include "ptx/thread.h"
#include "ptx/tma.h"

namespace mla {

// MLA decode of 16 rows where each request is cut into two chunks: the two blocks are a cluster and add up what they have without
// storing it to global memory, so that no second kernel has to wait for them.
//
// Each block leaves its output, normalised fp32, and the LSE of its rows in shared memory. Each merges half of the columns, which it
// reads from both.

template <class Shape>
struct SmallMClusterReduce {
    const SmallMMemory<Shape>& memory;
    const SmallMArguments& a;
    int thread;  // of 256

    /// When both blocks' halves are there; the other's are read when this returns.
    __device__ __forceinline__ void merge(int request, int rank) const {
        const int row = thread / 16, column = thread % 16 * 4, in_four = row % 4;  // and 64, 128, 192 columns further
        const uint32_t area = Shape::kClusterReduce + rank * Shape::kClusterReduceBytes,
                       at = row * Shape::kClusterReducePitch + column;
        const uint32_t other = map_shared(memory.base + area + at * 4, rank ^ 1);
        const float4 lse = load_cluster(map_shared(memory.base + Shape::kMaxima + row / 4 * 16, rank ^ 1));
        float4 x[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) x[j] = load_cluster(other + j * 256);
        const float own_lse = memory.lse()[row];
        const float its_lse = in_four < 2 ? (in_four == 0 ? lse.x : lse.y) : (in_four == 2 ? lse.z : lse.w);
        SoftmaxRow total{fmaxf(own_lse, its_lse), 0.0f};
        const float shift = total.shift(kLog2E);
        const float weight = Exp2()(own_lse * kLog2E - shift), its_weight = Exp2()(its_lse * kLog2E - shift);
        total.sum = weight + its_weight;
        const float inverse = total.inverse(), factor = weight * inverse, its_factor = its_weight * inverse;
        const float* const own = memory.exchange(rank) + at;
        const size_t output_row = static_cast<size_t>(request) * Shape::kRows + row;
        uint8_t* const to = a.o + (output_row * Shape::kLatent + rank * Shape::kHalf + column) * 2;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float4 y = *reinterpret_cast<const float4*>(own + j * 64);
            *reinterpret_cast<uint2*>(to + j * 128) = make_uint2(
                Bf16::pack(factor * y.x + its_factor * x[j].x, factor * y.y + its_factor * x[j].y),
                Bf16::pack(factor * y.z + its_factor * x[j].z, factor * y.w + its_factor * x[j].w));
        }
        if (rank == 0 && column == 0) a.lse[lse_index(a, request, row)] = total.lse(kLog2E);
    }
};

// MLA decode of 16 or 32 rows on wgmma: tokens, not queries, are the 64 rows of its products.
//
// Scores S^T = K Q^T, [64 tokens, 16 rows], and output O^T = V^T P^T, [512 columns, 16 rows]: a quarter of the tensor work that
// 16 queries padded to 64 would take, 18 KB of queries, and an output that fits into the 64 registers a thread of one
// warpgroup has for it. So a warpgroup does whole pages by itself, scores to output, and needs no other:
//   scores of a page as its panels land (K as A, rows of 128 bytes); maxima over its four warps; exponentials;
//   P^T through 2 KB of shared memory; eight products with 64 columns of the same page each (V as A, transposed).
// 16 rows: the two warpgroups take pages in turns, and add up at the end of a piece. 32 rows: each has 16 of them and takes all
// pages. Three warps load: the next pieces' queries and pages are on their way while a piece is finished. Blocks keep in step.

constexpr int kSmallMLead = 2;             // quarter pages by which a block may be ahead of the average
constexpr int kSmallMThrottledPages = 12;  // chunks of fewer pages are not kept in step

/// Load one of the three parts of all queries and all pages, three panels in one box: one warp for each part, since a load takes
/// its thread about 150 cycles. Queries come first: behind two pages they would take three times as long. Returns whether requests are as
/// expected.
///
/// Blocks with many pages keep in step (mla/throttle.h). The first part's warp waits for the others, and the warps of the other two parts for
/// its arrival where a place is free, so that nothing of a page is asked for too early.
template <class Shape>
__device__ __forceinline__ bool produce_small_m(
    const SmallMMemory<Shape>& memory, const TensorMap& queries, const TensorMap& cache, const SmallMArguments& a,
    FirstPiece<true, SmallMArguments>& start, int part, int lane) {
    uint32_t tile = 0;  // so many so far
    const int first = part * Shape::kPartPanels;
    QueryTurn turn = {Shape::kQueryBuffers};
    DecodeScheduler scheduler;
    PageNumbers numbers = start.numbers(a, static_cast<int>(blockIdx.x), lane, scheduler);
    DecodePiece piece = start.piece;
    bool any = start.any;
    const bool throttled = a.shares.count_set >= 0 && any && scheduler.end - scheduler.begin >= kSmallMThrottledPages;
    unsigned long long* const word = &throttle_words[max(a.shares.count_set, 0)];
    Throttle throttle = Throttle();
#pragma unroll 1
    while (any) {
        const int count = piece.steps.end - piece.steps.begin;
        if (count > 0) {
            mbarrier_wait(memory.query_empty(turn.buffer), turn.parity ^ 1);
            if (lane == 0) {
                const uint32_t full = memory.query_full(turn.buffer);
                mbarrier_arrive_expect(full, Shape::kPartPanels * Shape::kQueryPanel);
                tma_load_3d(memory.query(turn.buffer, first), queries, full, 0, piece.request * Shape::kRows, first);
            }
            turn.advance();
        }
        for (int page = 0; page < count; ++page, ++tile) {
            const int token = numbers.of(page) * Shape::kTokens;
            const int stage = static_cast<int>(tile % Shape::kStages);
            mbarrier_wait(memory.empty(stage, part), tile / Shape::kStages % 2 ^ 1);
            if (lane == 0) {
                if (part == 0) {
                    if (throttled) throttle.wait(word, kSmallMLead);
                    if (tile >= Shape::kStages) {
#pragma unroll
                        for (int other = 1; other < Shape::kParts; ++other) mbarrier_arrive(memory.empty(stage, other));
                    }
                }
                const uint32_t full = memory.full(stage, part);
                mbarrier_arrive_expect(full, Shape::kPartPanels * Shape::kPanelBytes);
                tma_load_3d(memory.tokens(stage, first), cache, full, 0, token, first);
                if (throttled && part == 0) throttle.count(word);
            }
            numbers.pass(page);
        }
        any = scheduler.next(a.schedule, piece);
        if (any) numbers = page_numbers(a, piece, lane);
    }
    if (throttled && part == 0 && lane == 0) throttle.end(word);
    return start.expected;
}

/// One block for each chunk of the line of pages; requests have Shape::kRows rows.
template <class Shape>
__global__ void __maxnreg__(Shape::kRegisters) latent_small_m(
    const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap cache,
    const __grid_constant__ SmallMArguments a) {
    uint8_t* const start = swizzled_shared();
    const SmallMMemory<Shape> memory = {start, shared_address(start)};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
    constexpr int kWarps = Shape::kConsumerThreads / 32;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < Shape::kStages; ++stage) {
            for (int part = 0; part < Shape::kParts; ++part) {
                mbarrier_init(memory.full(stage, part), 1);
                mbarrier_init(memory.empty(stage, part), 4 * Shape::kRowTiles + (part > 0 ? 1 : 0));
            }
        }
        for (int buffer = 0; buffer < 2; ++buffer) {
            mbarrier_init(memory.query_full(buffer), Shape::kParts);
            mbarrier_init(memory.query_empty(buffer), kWarps);
        }
        mbarrier_fence_init();
        tma_prefetch_map(queries);
        tma_prefetch_map(cache);
    }
    __syncthreads();
    // Also before the wait: L2 is where the previous kernel's writes go, so nothing stale can stay there.
    if (warp > kWarps) fetch_inputs(a, Shape::kWidth, static_cast<int>(threadIdx.x) - 32 * (kWarps + 1), 96);
    const auto wait = [] {
        grid_dependency_wait();
        grid_dependency_release();
    };

    bool expected;
    if (warp < kWarps) {
        wait();
        expected = SmallMConsumer<Shape>{memory, a, warp / 4, warp % 4, lane}.consume();
    } else if (warp < kWarps + Shape::kParts) {
        // By these warps alone: where all have it, the compiler does not see any more that warps stay whole, and works out the products' operands
        // thread by thread.
        FirstPiece<true, SmallMArguments> first(a, static_cast<int>(blockIdx.x));
        wait();
        expected = produce_small_m<Shape>(memory, queries, cache, a, first, warp - kWarps, lane);
    } else {
        wait();
        expected = a.schedule.as_expected(lane);
    }
    if constexpr (Shape::kRowTiles == 1) {
        if (!a.paired || !expected) return;
        __syncwarp();
        cluster_barrier();  // both blocks have left their outputs
        const int request = static_cast<int>(blockIdx.x) / 2;
        if (warp < kWarps && request < a.schedule.batch)
            SmallMClusterReduce<Shape>{memory, a, recomputed_thread()}.merge(request, cluster_rank());
        __syncwarp();
        cluster_barrier();  // the other one has read them
    }
}

}  // namespace mla
