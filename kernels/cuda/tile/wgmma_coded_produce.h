// SPDX-License-Identifier: MIT
// The warp that copies pages of e4m3 codes to shared memory.
#pragma once

#include <cstdint>

#include "ptx/bulk_copy.h"
#include "ptx/mbarrier.h"
#include "ptx/prefetch.h"
#include "ptx/tma_hint.h"
#include "tile/coded_latent_shape.h"
#include "tile/wgmma_latent_produce.h"

/// Ask queries, page numbers and lengths into L2, all blocks together; hints, so also before the kernels this one depends on
/// have ended: L2 is where their writes go.
template <class Arguments>
__device__ __forceinline__ void fetch_coded_inputs(const Arguments& a, int thread, int threads) {
    const int stride = static_cast<int>(gridDim.x) * threads, first = static_cast<int>(blockIdx.x) * threads + thread;
    const auto fetch = [&](const void* array, long long bytes) {
        for (long long at = first * 128LL; at < bytes; at += stride * 128LL) {
            prefetch_l2(static_cast<const uint8_t*>(array) + at);
        }
    };
    const long long batch = a.schedule.batch;
    fetch(a.schedule.seqlens, batch * 4);
    fetch(a.block_table, batch * a.max_blocks * 4);
    fetch(a.q, batch * a.seqlen_q * a.heads * CodedRow::kWidth * 2);
}

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
