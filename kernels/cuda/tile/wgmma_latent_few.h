// SPDX-License-Identifier: MIT
// MLA decode of 16 or 32 rows on wgmma: tokens, not queries, are the 64 rows of its products.
//
// Scores S^T = K Q^T, [64 tokens, 16 rows], and output O^T = V^T P^T, [512 columns, 16 rows]: a quarter of the tensor work that
// 16 queries padded to 64 would take, 18 KB of queries, and an output that fits into the 64 registers a thread of one
// warpgroup has for it. So a warpgroup does whole pages by itself, scores to output, and needs no other:
//   scores of a page as its panels land (K as A, rows of 128 bytes); maxima over its four warps; exponentials;
//   P^T through 2 KB of shared memory; eight products with 64 columns of the same page each (V as A, transposed).
// 16 rows: the two warpgroups take pages in turns, and add up at the end of a piece. 32 rows: each has 16 of them and takes all
// pages. Three warps load: the next pieces' queries and pages are on their way while a piece is finished. Blocks keep in step.
#pragma once

#include "ptx/cluster.h"
#include "ptx/grid_dependency.h"
#include "ptx/mbarrier.h"
#include "ptx/shared_address.h"
#include "ptx/tma_3d.h"
#include "ptx/warp_uniform.h"
#include "tile/pace.h"
#include "tile/wgmma_latent_few_consume.h"
#include "tile/wgmma_latent_few_pair.h"
#include "tile/wgmma_latent_produce.h"

#ifndef FEW_PACE
#define FEW_PACE 2   // quarter pages by which a block may be ahead of the average; 0: any
#endif
constexpr int kFewInStep = 12;   // chunks of fewer pages are not kept in step

/// Load one of the three parts of all queries and all pages, three panels in one box: one warp for each part, since a load takes
/// its thread about 150 cycles. Queries come first: behind two pages they would take three times as long. Returns whether requests are as
/// expected.
///
/// Blocks with many pages keep in step (tile/pace.h). The first part's warp waits for the others, and the warps of the other two parts for
/// its arrival where a place is free, so that nothing of a page is asked for too early.
template <class Shape>
__device__ __forceinline__ bool produce_few(
    const FewMemory<Shape>& memory, const TensorMap& queries, const TensorMap& cache, const FewArguments& a,
    FirstPiece<true, FewArguments>& start, int part, int lane) {
    uint32_t tile = 0;  // so many so far
    const int first = part * Shape::kPartPanels;
    QueryTurn turn = {Shape::kQueryBuffers};
    DecodeWalk walk;
    PageNumbers numbers = start.numbers(a, static_cast<int>(blockIdx.x), lane, walk);
    DecodePiece piece = start.piece;
    bool any = start.any;
    const bool paced = FEW_PACE != 0 && a.shares.count_set >= 0 && any && walk.end - walk.begin >= kFewInStep;
    unsigned long long* const word = &pace_words[max(a.shares.count_set, 0)];
    Pace pace = Pace();
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
                    if (paced) pace.wait(word, FEW_PACE);
                    if (tile >= Shape::kStages) {
#pragma unroll
                        for (int other = 1; other < Shape::kParts; ++other) mbarrier_arrive(memory.empty(stage, other));
                    }
                }
                const uint32_t full = memory.full(stage, part);
                mbarrier_arrive_expect(full, Shape::kPartPanels * Shape::kPanelBytes);
                tma_load_3d(memory.tokens(stage, first), cache, full, 0, token, first);
                if (paced && part == 0) pace.count(word);
            }
            numbers.pass(page);
        }
        any = walk.next(a.schedule, piece);
        if (any) numbers = page_numbers(a, piece, lane);
    }
    if (paced && part == 0 && lane == 0) pace.end(word);
    return start.expected;
}

/// One block for each chunk of the line of pages; requests have Shape::kRows rows.
template <class Shape>
__global__ void __maxnreg__(Shape::kRegisters) latent_few(
    const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap cache,
    const __grid_constant__ FewArguments a) {
    uint8_t* const start = swizzled_shared();
    const FewMemory<Shape> memory = {start, shared_address(start)};
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
        expected = FewConsumer<Shape>{memory, a, warp / 4, warp % 4, lane}.consume();
    } else if (warp < kWarps + Shape::kParts) {
        // By these warps alone: where all have it, the compiler does not see any more that warps stay whole, and works out the products' operands
        // thread by thread.
        FirstPiece<true, FewArguments> first(a, static_cast<int>(blockIdx.x));
        wait();
        expected = produce_few<Shape>(memory, queries, cache, a, first, warp - kWarps, lane);
    } else {
        wait();
        expected = a.schedule.as_expected(lane);
    }
    if constexpr (Shape::kRowTiles == 1) {
        if (!a.paired || !expected) return;
        __syncwarp();
        cluster_barrier();   // both blocks have left their outputs
        const int request = static_cast<int>(blockIdx.x) / 2;
        if (warp < kWarps && request < a.schedule.batch) FewPair<Shape>{memory, a, recomputed_thread()}.merge(request, cluster_rank());
        __syncwarp();
        cluster_barrier();   // the other one has read them
    }
}
