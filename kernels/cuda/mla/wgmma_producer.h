// SPDX-License-Identifier: MIT
// The warps that bring queries and pages to shared memory.
#pragma once

#include <type_traits>

#include "mla/wgmma_shape.h"
#include "ptx/barrier.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/thread.h"
#include "ptx/tma.h"

namespace mla {

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

/// The same of what a group needs first, if lengths are what the host expected: lengths, and the first page numbers. A whole warp.
template <class Arguments>
__device__ __forceinline__ void fetch_start(const Arguments& a, int group, int lane) {
    const auto& schedule = a.schedule;
    for (int first = lane * 32; first < schedule.batch; first += 32 * 32) prefetch_l2(schedule.seqlens + first);
    if (lane > 0 || schedule.share_inverse == 0) return;
    const int request = group * schedule.share_inverse >> 20;
    const int start = schedule.shares * schedule.full_chunk - schedule.full;  // what starting a request counts for
    const int page = max(0, (group - request * schedule.shares) * schedule.full_chunk - start);
    if (request < schedule.batch && page < a.max_blocks) prefetch_l2(a.block_table + request * a.max_blocks + page);
}

/// The page numbers of a piece, read 32 at a time and one such batch ahead. Entries behind the piece are not read.
struct PageNumbers {
    const int* table;
    int count, lane;
    int first;      // entry of the table
    int now, next;  // of pages 32 i + lane and 32 (i + 1) + lane

    __device__ __forceinline__ PageNumbers(const int* table_, int count_, int lane_, int first_ = 0)
        : table(table_), count(count_), lane(lane_), first(first_), now(read(lane_)), next(read(32 + lane_)) {}
    __device__ __forceinline__ int read(int page) const {
        return page < count ? __ldg(table + static_cast<unsigned>(first + page)) : 0;
    }
    /// Of page `page`. The whole warp asks, in order.
    __device__ __forceinline__ int of(int page) const { return __shfl_sync(0xffffffffu, now, page % 32); }
    __device__ __forceinline__ void pass(int page) {
        if (page % 32 != 31) return;
        now = next;
        next = read(page + 33 + lane);
    }
};

/// Those of a piece.
template <class Arguments>
__device__ __forceinline__ PageNumbers page_numbers(const Arguments& a, const DecodePiece& piece, int lane) {
    // The table has less than 2^28 entries.
    return {a.block_table, piece.steps.end - piece.steps.begin, lane, piece.request * a.max_blocks + piece.steps.begin};
}

/// Where a group's loads begin if requests are as the host expects, worked out before the wait for the previous kernel, since nothing
/// has to be read for it. Behind the wait page numbers are read beside the lengths, and one vote decides.
template <bool kExpected, class Arguments = LatentArguments>
struct FirstPiece {
    DecodeScheduler scheduler;  // behind the piece
    DecodePiece piece = {};
    int any;
    bool expected = true;

    __device__ __forceinline__ FirstPiece(const Arguments& a, int group)
        : scheduler(a.schedule, group), any(scheduler.next(a.schedule, piece)) {
        compute_now(scheduler.request);
        compute_now(scheduler.start);
        compute_now(piece.request);
        compute_now(piece.steps.begin);
        compute_now(piece.steps.end);
        compute_now(any);
    }

    /// The numbers of the piece's pages; `piece` and `any` are then those of the lengths, and `rest` is the walk behind the piece.
    /// A whole warp.
    template <class Scheduler>
    __device__ __forceinline__ PageNumbers numbers(const Arguments& a, int group, int lane, Scheduler& rest) {
        const PageNumbers numbers = page_numbers(a, piece, lane);
        expected = a.schedule.as_expected(lane);
        if constexpr (std::is_same_v<Scheduler, DecodeScheduler>) {
            scheduler.known = -1;  // of other pieces the lengths say it
            rest = scheduler;
        } else {
            rest = Scheduler::behind(piece.request);  // a group has one piece where requests are as expected
        }
        if (expected) return numbers;
        piece = {};
        rest = Scheduler(a.schedule, group, lane, CutFromLengths());
        any = rest.next(a.schedule, piece);
        return page_numbers(a, piece, lane);
    }
};
template <>
struct FirstPiece<false> {
    __device__ __forceinline__ FirstPiece(const LatentArguments&, int) {}
};

/// Ask for a third of a request's queries, to one of the buffers. One thread.
template <class Shape>
__device__ __forceinline__ void ask_queries(
    const LatentMemory<Shape>& memory, const TensorMap& queries, const LatentArguments& a, int request, int row_tile,
    int buffer, int part) {
    constexpr int kEach = Shape::kPanels / Shape::kParts;
    static_assert(kEach * Shape::kParts == Shape::kPanels, "nothing is left over");
    const int first = part * kEach, last = first + kEach;
    const uint32_t full = memory.query_full(buffer), behind = buffer * Shape::kSecondQuery;
    const int row = request * a.seqlen_q * a.heads + row_tile * Shape::kRows;
#pragma unroll 1
    for (int panel = first; panel < last; ++panel) {
        mbarrier_arrive_expect(full, a.query_bytes / Shape::kPanels);
        tma_load(memory.query(panel) + behind, queries, full, panel * 64, row);
    }
}

constexpr int kQueryBarrier = 7;  // all queries of a piece are asked for

/// Half of a page's values, panels first to last, by one thread. A pair's blocks load a box each, for both.
template <class Shape>
__device__ __forceinline__ void load_values(
    const LatentMemory<Shape>& memory, const TensorMap& cache, int stage, int first, int last, int row, int rank,
    bool once, uint64_t policy) {
    constexpr int kBoxPanels = Shape::kBoxPanels;
#pragma unroll 1
    for (int box = 0; box < 2; ++box) {
        mbarrier_arrive_expect(memory.full(stage, first + box * kBoxPanels), kBoxPanels * Shape::kPanelBytes);
    }
    if constexpr (Shape::kPair == 2) {
        const int panel = first + rank * kBoxPanels;
        const uint32_t full = memory.full(stage, panel), to = memory.tokens(stage, panel);
        if (once) tma_load_3d_multicast(to, cache, full, 0, row, panel, 3, policy);
        else tma_load_3d_multicast(to, cache, full, 0, row, panel, 3);
    } else {
#pragma unroll 1
        for (int panel = first; panel < last; panel += kBoxPanels) {
            const uint32_t full = memory.full(stage, panel), to = memory.tokens(stage, panel);
            if (once) tma_load_3d(to, cache, full, 0, row, panel, policy);
            else tma_load_3d(to, cache, full, 0, row, panel);
        }
    }
}

/// A panel of a page's keys, the rotary columns, by one thread: row `row` of the matrix and those behind it, from column x on. A
/// pair's blocks load half of the tokens each.
template <class Shape>
__device__ __forceinline__ void load_rotary(
    const LatentMemory<Shape>& memory, const TensorMap& rotary, int stage, int panel, int x, int row, int rank,
    bool once, uint64_t policy) {
    const uint32_t full = memory.full(stage, panel), to = memory.tokens(stage, panel);
    mbarrier_arrive_expect(full, Shape::kPanelBytes);
    const uint32_t half = to + rank * (Shape::kTokens / Shape::kPair) * 128;
    if constexpr (Shape::kPair == 2) {
        if (once) tma_load_multicast(half, rotary, full, x, row, 3, policy);
        else tma_load_multicast(half, rotary, full, x, row, 3);
    } else {
        if (once) tma_load(half, rotary, full, x, row, policy);
        else tma_load(half, rotary, full, x, row);
    }
}

/// Load one of the three parts of all queries and all pages: one warp for each part, since a load takes its thread about 200
/// cycles, and since parts are free at different times. Queries come first: behind two pages they would take three times as long.
/// `walk` has given the first piece, if there is `any`, and `numbers` are its pages'. In a pair it ends when both
/// blocks have used all that was loaded: then the other neither writes to this one's memory any more nor arrives there.
template <class Shape>
__device__ __forceinline__ void produce_pages(
    const LatentMemory<Shape>& memory, const TensorMap& queries, const TensorMap& cache, const LatentArguments& a,
    typename Shape::Scheduler scheduler, bool any, PageNumbers numbers, int rank, int part, int lane, bool expected) {
    constexpr int kTokens = Shape::kTokens / Shape::kPair;  // of the rotary columns that a block loads
    const int first = part * Shape::kHalfPanels, last = min(first + Shape::kHalfPanels, Shape::kPanels);
    uint32_t uses = 0;  // bit s: the parity of how often stage s was filled
    const uint64_t policy = policy_evict_first();
    const bool once = Shape::kOnce || (Shape::kOnceUneven && !expected);  // whether L2 is told
    QueryTurn turn = {Shape::kPair == 2 ? 1 : a.query_buffers};
    // The page that is asked for when the one before has landed, so that it is not in its way.
    [[maybe_unused]] int second = 1;
    const auto advance = [&] {
        DecodePiece piece = {};
        any = scheduler.next(a.schedule, piece);
        if (any) numbers = page_numbers(a, piece, lane);
    };
    for (; any; advance()) {
        const int count = numbers.count;
        if (count <= 0) continue;
        mbarrier_wait(memory.query_empty(turn.buffer), turn.parity ^ 1);
        // The row tile is worked out anew: registers are scarce.
        const int row_tile = Shape::kExpectedStart && a.row_tiles == 1 ? 0 : static_cast<int>(blockIdx.x) % a.row_tiles;
        if (lane == 0) ask_queries(memory, queries, a, scheduler.request - 1, row_tile, turn.buffer, part);
        named_barrier_sync(kQueryBarrier, 32 * Shape::kParts);
        turn.advance();
        for (int page = 0; page < count; ++page) {
            const int token = numbers.of(page) * Shape::kTokens + rank * kTokens;
            const int stage = page % 2, parity = static_cast<int>(uses >> stage & 1);
            if constexpr (Shape::kAlone) {
                if (page == second) mbarrier_wait(memory.full(0, first), 0);
            }
            uses ^= 1u << stage;
            mbarrier_wait(memory.empty(stage, part), parity ^ 1);
            if (part < Shape::kParts - 1) {
                if (lane == 0)
                    load_values(memory, cache, stage, first, last, token - rank * kTokens, rank, once, policy);
            } else if (lane == 0) {
                constexpr int kPanel = Shape::kPanels - 1;
                const int row = Shape::kRotaryApart ? (numbers.first + page) * Shape::kTokens + rank * kTokens : token;
                load_rotary(
                    memory, a.rotary, stage, kPanel, Shape::kRotaryApart ? 0 : kPanel * 64, row, rank, once, policy);
            }
            numbers.pass(page);
        }
        second = -1;  // the block's first piece only
    }
    if constexpr (Shape::kPair == 2) {
#pragma unroll 1
        for (int stage = 0; stage < Shape::kStages; ++stage) {
            mbarrier_wait(memory.empty(stage, part), static_cast<int>(uses >> stage & 1) ^ 1);
        }
    }
}

}  // namespace mla
