// SPDX-License-Identifier: MIT
// A block's first pages of e4m3 codes on their way to L2 while the kernel before still runs.
#pragma once

#include <cstdint>

#include "ptx/bulk_copy.h"
#include "tile/coded_latent_shape.h"
#include "tile/decode_schedule.h"

/// What the kernel before is about to write: nothing but a hint may depend on it. It goes past L1, where later reads would find it.
__device__ __forceinline__ int read_early(const int* global) { return *static_cast<const volatile int*>(global); }

/// Ask L2 for the first `pages` pages (at most 32) of the block's chunk, from lengths and page numbers as they are now, so that the first
/// copies need not wait for memory. One warp; `lengths` are Shape::kMostLengths ints of its own in shared memory.
template <class Shape>
__device__ __forceinline__ void ask_first_pages(
    const typename Shape::Arguments& a, int* lengths, int chunk, int pages, int lane) {
    auto schedule = a.schedule;
    if (schedule.batch > Shape::kMostLengths) return;
    for (int i = lane; i < schedule.batch; i += 32) lengths[i] = read_early(schedule.seqlens + i);
    __syncwarp();
    schedule.seqlens = lengths;
    DecodeWalk walk(schedule, chunk, lane);
    DecodePiece piece;
    while (pages > 0 && walk.next(schedule, piece)) {
        const int count = min(pages, piece.steps.end - piece.steps.begin);
        if (count <= 0) continue;
        if (lane < count) {
            const int* const table = a.block_table + static_cast<size_t>(piece.request) * a.max_blocks + piece.steps.begin;
            const int number = read_early(table + lane);
            if (number >= 0 && number < a.num_blocks) {
                constexpr int kBytes = CodedRow::kPage * CodedRow::kBytes;
                bulk_prefetch(a.cache + static_cast<size_t>(number) * kBytes, kBytes);
            }
        }
        pages -= count;
    }
}
