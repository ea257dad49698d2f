// SPDX-License-Identifier: MIT
// The warp that brings queries and pages to shared memory.
#pragma once

#include "ptx/mbarrier.h"
#include "ptx/prefetch.h"
#include "ptx/tma.h"
#include "tile/wgmma_latent_shape.h"

#ifndef FETCHED_PAGES
#define FETCHED_PAGES 2  // a tunable of the kernel file: how far ahead pairs ask pages into L2
#endif

/// Load all pages of all pieces. One warp.
template <class Shape>
__device__ __forceinline__ void produce_pages(
    const LatentMemory<Shape>& memory, const TensorMap& queries, const TensorMap& cache, const LatentArguments& a,
    int group, int row_tile, int rank, int lane) {
    constexpr int kTokens = Shape::kTokens / Shape::kPair;  // of a box
    constexpr int kAhead = Shape::kPair == 2 ? FETCHED_PAGES : 0;
    uint32_t tile = 0;  // so many so far
    QueryTurn turn = {Shape::kPair == 2 ? 1 : a.query_buffers};
    DecodeWalk walk(a.schedule, group, lane);
    DecodePiece piece;
    while (walk.next(a.schedule, piece)) {
        const int count = piece.steps.end - piece.steps.begin;
        if (count <= 0) continue;
        const int* const table =
            a.block_table + static_cast<size_t>(piece.request) * a.max_blocks + piece.steps.begin;
        int next = __ldg(table);  // page number; always read one page ahead, and never behind the piece

        mbarrier_wait(memory.query_empty(turn.buffer), turn.parity ^ 1);
        if (lane == 0) {
            const uint32_t full = memory.query_full(turn.buffer), behind = turn.buffer * Shape::kSecondQuery;
            mbarrier_arrive_expect(full, a.query_bytes);
            const int row = piece.request * a.seqlen_q * a.heads + row_tile * Shape::kRows;
#pragma unroll 1
            for (int panel = 0; panel < Shape::kPanels; ++panel) {
                tma_load(memory.query(panel) + behind, queries, full, panel * 64, row);
            }
        }
        turn.advance();
        for (int page = 0; page < count; ++page, ++tile) {
            const int token = next * Shape::kTokens + rank * kTokens;
            if (page + 1 < count) next = __ldg(table + page + 1);
            const int stage = tile % 2, parity = tile / 2 % 2;
#pragma unroll 1
            for (int order = 0; order < Shape::kParts; ++order) {
                // The last part is free first, then the owner's half: the order in which the scores take them.
                const int part = order == 0 ? Shape::kParts - 1 : stage ^ (order - 1);
                mbarrier_wait(memory.empty(stage, part), parity ^ 1);
                if (lane != 0) continue;
                const int first = part * Shape::kHalfPanels, last = min(first + Shape::kHalfPanels, Shape::kPanels);
#pragma unroll 1
                for (int panel = first; panel < last; ++panel) {
                    const uint32_t full = memory.full(stage, panel), to = memory.tokens(stage, panel);
                    mbarrier_arrive_expect(full, Shape::kPanelBytes);
                    if constexpr (Shape::kPair == 2) {
                        tma_load_multicast(to + rank * kTokens * 128, cache, full, panel * 64, token, 3);
                    } else {
                        tma_load(to, cache, full, panel * 64, token);
                    }
                }
            }
            if (kAhead > 0 && lane == 0 && row_tile == 0 && page + kAhead < count) {
                const size_t number = __ldg(table + page + kAhead);
                prefetch_l2_bulk(a.cache + number * Shape::kPageBytes, Shape::kPageBytes);
            }
        }
    }
}
