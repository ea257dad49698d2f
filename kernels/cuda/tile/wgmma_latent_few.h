// SPDX-License-Identifier: MIT
// MLA decode of 16 or 32 rows on wgmma: tokens, not queries, are the 64 rows of its products.
//
// Scores S^T = K Q^T, [64 tokens, 16 rows], and output O^T = V^T P^T, [512 columns, 16 rows]: a quarter of the tensor work that
// 16 queries padded to 64 would take, 18 KB of queries, and an output that fits into the 64 registers a thread of one
// warpgroup has for it. So a warpgroup does whole pages by itself, scores to output, and needs no other:
//   scores of a page as its panels land (K as A, rows of 128 bytes); maxima over its four warps; exponentials;
//   P^T through 2 KB of shared memory; eight products with 64 columns of the same page each (V as A, transposed).
// 16 rows: the two warpgroups take pages in turns, and add up at the end of a piece. 32 rows: each has 16 of them and takes all
// pages. Three warps load: the next pieces' queries and pages are on their way while a piece is finished.
#pragma once

#include "ptx/cluster.h"
#include "ptx/grid_dependency.h"
#include "ptx/mbarrier.h"
#include "ptx/shared_address.h"
#include "ptx/tma_3d.h"
#include "ptx/warp_uniform.h"
#include "tile/wgmma_latent_few_consume.h"
#include "tile/wgmma_latent_few_pair.h"
#include "tile/wgmma_latent_produce.h"

/// Load one of the three parts of all queries and all pages, three panels in one box: one warp for each part, since a load takes
/// its thread about 150 cycles. Queries come first: behind two pages they would take three times as long. Returns whether requests are as
/// expected.
template <class Shape>
__device__ __forceinline__ bool produce_few(
    const FewMemory<Shape>& memory, const TensorMap& queries, const TensorMap& cache, const FewArguments& a, int part,
    int lane) {
    uint32_t tile = 0;  // so many so far
    const int first = part * Shape::kPartPanels;
    QueryTurn turn = {Shape::kQueryBuffers};
    DecodePiece piece = {};
    const auto numbers_of = [&](const DecodePiece& which) {
        return PageNumbers(
            a.block_table + static_cast<size_t>(which.request) * a.max_blocks + which.steps.begin,
            which.steps.end - which.steps.begin, lane);
    };
    if (kExpectedCut && a.schedule.expected.chunk != 0) {
        DecodeWalk(a.schedule, static_cast<int>(blockIdx.x)).next(a.schedule, piece);
    }
    PageNumbers numbers = numbers_of(piece);   // of the piece that is expected: they come while the lengths are looked at
    DecodeWalk walk(a.schedule, static_cast<int>(blockIdx.x), lane);
    while (walk.next(a.schedule, piece)) {
        const int count = piece.steps.end - piece.steps.begin;
        if (count <= 0) continue;
        if (walk.known < 0) numbers = numbers_of(piece);
        mbarrier_wait(memory.query_empty(turn.buffer), turn.parity ^ 1);
        if (lane == 0) {
            const uint32_t full = memory.query_full(turn.buffer);
            mbarrier_arrive_expect(full, Shape::kPartPanels * Shape::kQueryPanel);
            tma_load_3d(memory.query(turn.buffer, first), queries, full, 0, piece.request * Shape::kRows, first);
        }
        turn.advance();
        for (int page = 0; page < count; ++page, ++tile) {
            const int token = numbers.of(page) * Shape::kTokens;
            const int stage = static_cast<int>(tile % Shape::kStages);
            mbarrier_wait(memory.empty(stage, part), tile / Shape::kStages % 2 ^ 1);
            if (lane == 0) {
                const uint32_t full = memory.full(stage, part);
                mbarrier_arrive_expect(full, Shape::kPartPanels * Shape::kPanelBytes);
                tma_load_3d(memory.tokens(stage, first), cache, full, 0, token, first);
            }
            numbers.pass(page);
        }
    }
    return walk.known >= 0;
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
                mbarrier_init(memory.empty(stage, part), 4 * Shape::kRowTiles);
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
    grid_dependency_wait();
    grid_dependency_release();

    bool expected;
    if (warp < kWarps) {
        expected = FewConsumer<Shape>{memory, a, warp / 4, warp % 4, lane}.consume();
    } else if (warp < kWarps + Shape::kParts) {
        expected = produce_few<Shape>(memory, queries, cache, a, warp - kWarps, lane);
    } else {
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
