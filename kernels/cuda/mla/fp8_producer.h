// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes on wgmma: the warp that copies pages to shared memory, and the slots it fills.
#pragma once

#include <cstdint>

#include "mla/fp8_shape.h"
#include "mla/wgmma_producer.h"
#include "ptx/mbarrier.h"
#include "ptx/tma.h"

namespace mla {

// Slots of half a page in the MLA decode over e4m3 codes on wgmma: which ones a page has, and their rows behind a request's length.

/// Where a page's halves lie, and the parity of their barriers; `ordinal` counts pages.
template <class Shape>
struct PageSlots {
    uint32_t indices[2], parities[2];

    __device__ __forceinline__ explicit PageSlots(uint32_t ordinal) {
#pragma unroll
        for (uint32_t half = 0; half < 2; ++half) {
            indices[half] = (2 * ordinal + half) % Shape::kSlots;
            parities[half] = (2 * ordinal + half) / Shape::kSlots % 2;
        }
    }
};

/// Rows behind a request's length hold NaN: clear those of the slot at `slot` from row `count` on, codes, scales and rotary columns. By
/// the 128 threads of a warpgroup.
template <class Memory>
__device__ __forceinline__ void clear_rows(const Memory& memory, uint32_t slot, int count, int thread) {
    constexpr int kChunks = Fp8Row::kBytes / 16;
    uint8_t* const rows = memory.at(slot);
    const int valid = max(0, count);
    for (int i = valid * kChunks + thread; i < kSlotTokens * kChunks; i += 128) {
        *reinterpret_cast<uint4*>(rows + i * 16) = make_uint4(0, 0, 0, 0);
    }
}

// The warp that copies pages of e4m3 codes to shared memory.

/// Copies pages, half a page at a time, as slots become free. One warp.
template <class Shape, class Memory>
struct Fp8Producer {
    const Memory& memory;
    const typename Shape::Arguments& a;
    int lane;
    uint64_t policy = policy_evict_first();
    uint32_t slot = 0, parity = 1, asked = 0;  // asked: pages

    static __device__ __forceinline__ int pages(const DecodePiece& piece) {
        return piece.steps.end - piece.steps.begin;
    }

    /// Where the page numbers of a piece are.
    __device__ __forceinline__ const int* table(const DecodePiece& piece) const {
        return a.block_table + static_cast<size_t>(piece.request) * a.max_blocks + piece.steps.begin;
    }

    /// All pages of a piece of a request with so many `tokens`; `step` comes before each, by one lane.
    template <class Step>
    __device__ __forceinline__ void copy(const DecodePiece& piece, PageNumbers numbers, int tokens, Step step) {
        int left = tokens - piece.steps.begin * Shape::kTokens;
        for (int page = 0; page < pages(piece); ++page) {
            if (lane == 0) step();
            const uint8_t* from = a.cache + static_cast<size_t>(numbers.of(page)) * (Fp8Row::kPage * Fp8Row::kBytes);
#pragma unroll
            for (int half = 0; half < 2; ++half, from += Shape::kSlotBytes, left -= kSlotTokens) {
                mbarrier_wait(memory.empty(slot), parity);
                if (lane == 0) {
                    const uint32_t bytes = max(0, min(kSlotTokens, left)) * Fp8Row::kBytes;
                    const uint32_t landed = memory.landed(slot, asked);
                    mbarrier_arrive_expect(landed, bytes);
                    if (bytes > 0) {
                        if constexpr (Shape::kDropFirst) bulk_load(memory.slot(slot), from, bytes, landed, policy);
                        else bulk_load(memory.slot(slot), from, bytes, landed);
                    }
                }
                if (++slot == Shape::kSlots) {
                    slot = 0;
                    parity ^= 1;
                }
            }
            ++asked;
            numbers.pass(page);
        }
    }

    /// All pieces of `plan`; `numbers` are the page numbers of the first one.
    template <class Plan, class Step>
    __device__ __forceinline__ void copy_all(Plan& plan, PageNumbers numbers, Step step) {
        while (plan.any) {
            const int count = pages(plan.piece);
            if (count > 0) copy(plan.piece, numbers, plan.schedule().tokens(plan.piece.request), step);
            plan.next();
            if (plan.any) numbers = PageNumbers(table(plan.piece), pages(plan.piece), lane);
        }
    }

    /// All pieces of `walk`.
    __device__ __forceinline__ void copy_all(DecodeScheduler scheduler) {
        DecodePiece piece;
        while (scheduler.next(a.schedule, piece)) {
            if (pages(piece) <= 0) continue;
            copy(piece, PageNumbers(table(piece), pages(piece), lane), a.schedule.tokens(piece.request), [] {});
        }
    }
};

}  // namespace mla
