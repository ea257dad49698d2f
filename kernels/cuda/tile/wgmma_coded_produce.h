// SPDX-License-Identifier: MIT
// The warp that copies pages of e4m3 codes to shared memory.
#pragma once

#include <cstdint>

#include "ptx/bulk_copy.h"
#include "ptx/mbarrier.h"
#include "ptx/tma_hint.h"
#include "tile/coded_latent_shape.h"
#include "tile/wgmma_latent_produce.h"

/// Copy all pages of all pieces, half a page at a time, as slots become free. One warp.
template <class Shape, class Memory>
__device__ __forceinline__ void produce_codes(
    const Memory& memory, const typename Shape::Arguments& a, int chunk, int lane) {
    uint32_t slot = 0, parity = 1;
    const uint64_t policy = policy_evict_first();
    DecodeWalk walk(a.schedule, chunk, lane);
    DecodePiece piece;
    while (walk.next(a.schedule, piece)) {
        const int count = piece.steps.end - piece.steps.begin;
        if (count <= 0) continue;
        PageNumbers numbers(
            a.block_table + static_cast<size_t>(piece.request) * a.max_blocks + piece.steps.begin, count, lane);
        int left = a.schedule.tokens(piece.request) - piece.steps.begin * Shape::kTokens;
        for (int page = 0; page < count; ++page) {
            const uint8_t* from = a.cache + static_cast<size_t>(numbers.of(page)) * (CodedRow::kPage * CodedRow::kBytes);
#pragma unroll
            for (int half = 0; half < 2; ++half, from += Shape::kSlotBytes, left -= kSlotTokens) {
                mbarrier_wait(memory.empty(slot), parity);
                if (lane == 0) {
                    const uint32_t bytes = max(0, min(kSlotTokens, left)) * CodedRow::kBytes;
                    mbarrier_arrive_expect(memory.full(slot), bytes);
                    if (bytes > 0) bulk_load(memory.slot(slot), from, bytes, memory.full(slot), policy);
                }
                if (++slot == Shape::kSlots) {
                    slot = 0;
                    parity ^= 1;
                }
            }
            numbers.pass(page);
        }
    }
}
