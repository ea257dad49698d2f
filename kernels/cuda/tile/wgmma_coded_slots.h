// SPDX-License-Identifier: MIT
// Slots of half a page in the MLA decode over e4m3 codes on wgmma: which ones a page has, and their rows behind a request's length.
#pragma once

#include <cstdint>

#include "tile/coded_latent_shape.h"

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
    constexpr int kChunks = CodedRow::kBytes / 16;
    uint8_t* const rows = memory.at(slot);
    const int valid = max(0, count);
    for (int i = valid * kChunks + thread; i < kSlotTokens * kChunks; i += 128) {
        *reinterpret_cast<uint4*>(rows + i * 16) = make_uint4(0, 0, 0, 0);
    }
}
