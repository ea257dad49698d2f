// SPDX-License-Identifier: MIT
// The warps that bring queries and pages to shared memory.
#pragma once

#include "ptx/mbarrier.h"
#include "ptx/prefetch.h"
#include "ptx/tma_elected.h"
#include "ptx/warp_uniform.h"
#include "tile/wgmma_latent_shape.h"

/// The page numbers of a piece, read 32 at a time and one such batch ahead. Entries behind the piece are not read.
struct PageNumbers {
    const int* table;
    int count, lane;
    int now, next;  // of pages 32 i + lane and 32 (i + 1) + lane

    __device__ __forceinline__ PageNumbers(const int* table_, int count_, int lane_)
        : table(table_), count(count_), lane(lane_), now(read(lane_)), next(read(32 + lane_)) {}
    __device__ __forceinline__ int read(int page) const { return page < count ? __ldg(table + page) : 0; }
    /// Of page `page`, or, with `ahead` (at most 32), of one further on. The whole warp asks, in order.
    __device__ __forceinline__ int of(int page, int ahead = 0) const {
        const int at = page % 32 + ahead;
        const int near = __shfl_sync(0xffffffffu, now, at % 32), far = __shfl_sync(0xffffffffu, next, at % 32);
        return at < 32 ? near : far;
    }
    __device__ __forceinline__ void pass(int page) {
        if (page % 32 != 31) return;
        now = next;
        next = read(page + 33 + lane);
    }
};

__device__ __forceinline__ uint32_t uniform_word(uint32_t x) { return static_cast<uint32_t>(warp_uniform(static_cast<int>(x))); }

/// Load one of the three parts of all queries and all pages: one warp for each part, since parts are free at different times, and
/// one warp alone would be busy all the time. Queries come first: behind two pages they would take three times as long.
template <class Shape>
__device__ __forceinline__ void produce_pages(
    const LatentMemory<Shape>& memory, const TensorMap& queries, const TensorMap& cache, const LatentArguments& a,
    int group, int row_tile, int rank, int part, int lane) {
    constexpr int kTokens = Shape::kTokens / Shape::kPair;  // of a box
    constexpr int kAhead = Shape::kFetched;
    const int first = part * Shape::kHalfPanels, panels = min(Shape::kHalfPanels, Shape::kPanels - first);
    uint32_t uses = 0;  // bit s: the parity of how often stage s was filled
    const uint64_t once = Shape::kOnce ? policy_evict_first() : policy_evict_normal();
    QueryTurn turn = {Shape::kPair == 2 ? 1 : a.query_buffers};
    DecodeWalk walk(a.schedule, group, lane);
    DecodePiece piece;
    while (walk.next(a.schedule, piece)) {
        const int count = piece.steps.end - piece.steps.begin;
        if (count <= 0) continue;
        const int* const table =
            a.block_table + static_cast<size_t>(piece.request) * a.max_blocks + piece.steps.begin;
        PageNumbers numbers(table, count, lane);
        // What comes later is on its way to L2, line by line: a bulk request would stand before the next loads in the copy engine.
        const auto fetch = [&](int page, int ahead) {
            const int number = numbers.of(page, ahead);
            if (page + ahead >= count || row_tile >= Shape::kPair) return;
            constexpr int kBytes = Shape::kPageBytes / Shape::kPair;
            const uint8_t* const from = a.cache + static_cast<size_t>(number) * Shape::kPageBytes + rank * kBytes;
#pragma unroll 1
            for (int at = lane * 128; at < kBytes; at += 32 * 128) prefetch_l2(from + at);
        };

        mbarrier_wait(memory.query_empty(turn.buffer), turn.parity ^ 1);
        {
            const uint32_t full = uniform_word(memory.query_full(turn.buffer));
            const uint32_t to = uniform_word(memory.query(first) + turn.buffer * Shape::kSecondQuery);
            const int row = warp_uniform(piece.request * a.seqlen_q * a.heads + row_tile * Shape::kRows);
            if (lane == 0) mbarrier_arrive_expect(full, a.query_bytes / Shape::kPanels * panels);
            __syncwarp();
#pragma unroll
            for (int i = 0; i < Shape::kHalfPanels; ++i) {
                if (i >= panels) continue;
                tma_load_elected(
                    to + i * Shape::kPanelBytes, queries, full, (first + i) * 64, row, policy_evict_normal());
            }
        }
        turn.advance();
        for (int page = 0; page < count; ++page) {
            const int stage = page % 2, parity = static_cast<int>(uses >> stage & 1);
            uses ^= 1u << stage;
            const uint32_t full = uniform_word(memory.full(stage, first));
            const uint32_t to = uniform_word(memory.tokens(stage, first) + rank * (kTokens * 128));
            // With rotary columns apart, part 2 is rows of theirs, page by page in the order of the table.
            const bool apart = Shape::kRotaryApart && part == Shape::kParts - 1;
            const int number = apart ? static_cast<int>(table - a.block_table) + page : numbers.of(page);
            const int token = warp_uniform(number * Shape::kTokens + rank * kTokens);
            mbarrier_wait(memory.empty(stage, part), parity ^ 1);
            if (lane < panels) mbarrier_arrive_expect(full + lane * 8, Shape::kPanelBytes);
            __syncwarp();
            const auto load = [&](const TensorMap& map, int i, int column) {
                if constexpr (Shape::kPair == 2) {
                    tma_load_multicast_elected(to + i * Shape::kPanelBytes, map, full + i * 8, column, token, 3, once);
                } else {
                    tma_load_elected(to + i * Shape::kPanelBytes, map, full + i * 8, column, token, once);
                }
            };
            if (apart) {
                load(a.rotary, 0, 0);
            } else {
#pragma unroll
                for (int i = 0; i < Shape::kHalfPanels; ++i) {
                    if (i < panels) load(cache, i, (first + i) * 64);
                }
            }
            if constexpr (kAhead > 0) {
                if (part == Shape::kParts - 1) fetch(page, kAhead);
            }
            numbers.pass(page);
        }
    }
}
