// SPDX-License-Identifier: MIT
// Which query rows a thread has where tokens (of scores) or columns (of outputs) are the 64 rows of a wgmma product, and query rows
// its columns.
//
// Accumulators are those of ptx/wgmma.h: number i = 4j + 2h + e of a thread is query row 8j + 2t + e, the thread's "slot" 2j + e, of
// row 16w + 8h + g of the product (w = warp % 4, g = lane / 4, t = lane % 4).
#pragma once

/// Of accumulator i.
__device__ __forceinline__ constexpr int slot_of(int i) { return i / 4 * 2 + i % 2; }

__device__ __forceinline__ int row_of_slot(int slot, int lane) { return slot / 2 * 8 + lane % 4 * 2 + slot % 2; }
