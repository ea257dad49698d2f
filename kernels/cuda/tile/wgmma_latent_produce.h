// SPDX-License-Identifier: MIT
// The warps that bring queries and pages to shared memory.
#pragma once

#include "ptx/mbarrier.h"
#include "ptx/named_barrier.h"
#include "ptx/prefetch.h"
#include "ptx/tma_hint.h"
#include "tile/wgmma_latent_shape.h"

/// Ask queries of `width` numbers of 2 bytes, page numbers and lengths into L2, all blocks together; hints, so also before the
/// kernels this one depends on have ended: L2 is where their writes go. Part of a block's threads.
template <class Arguments>
__device__ __forceinline__ void fetch_inputs(const Arguments& a, int width, int thread, int threads) {
    const int stride = static_cast<int>(gridDim.x) * threads, first = static_cast<int>(blockIdx.x) * threads + thread;
    const auto fetch = [&](const void* array, long long bytes) {
        for (long long at = first * 128LL; at < bytes; at += stride * 128LL) {
            prefetch_l2(static_cast<const uint8_t*>(array) + at);
        }
    };
    const long long batch = a.schedule.batch;
    fetch(a.schedule.seqlens, batch * 4);
    fetch(a.block_table, batch * a.max_blocks * 4);
    fetch(a.q, batch * a.seqlen_q * a.heads * width * 2);
}

/// The page numbers of a piece, read 32 at a time and one such batch ahead. Entries behind the piece are not read.
struct PageNumbers {
    const int* table;
    int count, lane;
    int now, next;  // of pages 32 i + lane and 32 (i + 1) + lane

    __device__ __forceinline__ PageNumbers(const int* table_, int count_, int lane_)
        : table(table_), count(count_), lane(lane_), now(read(lane_)), next(read(32 + lane_)) {}
    __device__ __forceinline__ int read(int page) const { return page < count ? __ldg(table + page) : 0; }
    /// Of page `page`. The whole warp asks, in order.
    __device__ __forceinline__ int of(int page) const { return __shfl_sync(0xffffffffu, now, page % 32); }
    __device__ __forceinline__ void pass(int page) {
        if (page % 32 != 31) return;
        now = next;
        next = read(page + 33 + lane);
    }
};

constexpr int kQueryBarrier = 7;  // all queries of a piece are asked for

/// Load one of the four quarters of the values' panels, the last also the rotary panel, of all queries and all pages: several
/// warps, since a load takes its thread about 200 cycles, and since parts are free at different times. Queries come first:
/// behind two pages they would take three times as long.
template <class Shape>
__device__ __forceinline__ void produce_pages(
    const LatentMemory<Shape>& memory, const TensorMap& queries, const TensorMap& cache, const LatentArguments& a,
    int group, int row_tile, int rank, int quarter, int lane) {
    constexpr int kTokens = Shape::kTokens / Shape::kPair;  // of a box
    const bool rotary = quarter == Shape::kQuarters - 1;
    uint32_t uses = 4;  // bit s: the parity of how often stage s was filled; bit 2: whether queries were an even number of times
    const uint64_t policy = policy_evict_first();
    DecodeWalk walk(a.schedule, group, lane);
    DecodePiece piece;
    while (walk.next(a.schedule, piece)) {
        const int count = piece.steps.end - piece.steps.begin;
        if (count <= 0) continue;
        const int entry = piece.request * a.max_blocks + piece.steps.begin;  // of the table, which has less than 2^28
        PageNumbers numbers(a.block_table + entry, count, lane);
        mbarrier_wait(memory.query_empty(), static_cast<int>(uses >> 2));
        uses ^= 4;
        if (lane == 0) {
            const int row = piece.request * a.seqlen_q * a.heads + row_tile * Shape::kRows;
            mbarrier_arrive_expect(memory.query_full(), a.query_bytes / Shape::kPanels * (rotary ? 3 : 2));
            const auto load = [&](int panel) {
                tma_load(memory.query(panel), queries, memory.query_full(), panel * 64, row);
            };
            if (rotary) load(Shape::kRotary);
#pragma unroll 1
            for (int panel = 2 * quarter; panel < 2 * quarter + 2; ++panel) load(panel);
        }
        named_barrier_sync(kQueryBarrier, 32 * Shape::kQuarters);
        for (int page = 0; page < count; ++page) {
            const auto token = [&](int of) { return numbers.of(of) * Shape::kTokens + rank * kTokens; };
            const auto await = [&](int of, int part) {
                mbarrier_wait(memory.empty(of % 2, part), static_cast<int>(uses >> of % 2 & 1) ^ 1);
            };
            const auto load = [&](int of, int panel, const TensorMap& map, int column, int row) {
                const uint32_t full = memory.full(of % 2, panel), to = memory.tokens(of % 2, panel);
                mbarrier_arrive_expect(full, Shape::kPanelBytes);
                if constexpr (Shape::kPair == 2) {
                    const uint32_t half = to + rank * kTokens * 128;
                    if constexpr (Shape::kOnce) tma_load_multicast(half, map, full, column, row, 3, policy);
                    else tma_load_multicast(half, map, full, column, row, 3);
                } else if constexpr (Shape::kOnce) {
                    tma_load(to, map, full, column, row, policy);
                } else {
                    tma_load(to, map, full, column, row);
                }
            };
            if (rotary && page % 2 == 0) {
                // Of two pages at once: the second one's place is free long before the first one's values.
                const int last = min(page + 1, count - 1);
#pragma unroll 1
                for (int of = page; of <= last; ++of) {
                    const int row = Shape::kRotaryApart ? (entry + of) * Shape::kTokens + rank * kTokens : token(of);
                    await(of, Shape::kQuarters);
                    if (lane == 0) {
                        if constexpr (Shape::kRotaryApart) load(of, Shape::kRotary, a.rotary, 0, row);
                        else load(of, Shape::kRotary, cache, Shape::kRotary * 64, row);
                    }
                    __syncwarp();
                }
            }
            const int first_token = token(page);
            await(page, quarter);
            uses ^= 1u << page % 2;
            if (lane == 0) {
#pragma unroll 1
                for (int panel = 2 * quarter; panel < 2 * quarter + 2; ++panel) load(page, panel, cache, panel * 64, first_token);
            }
            numbers.pass(page);
        }
    }
}
