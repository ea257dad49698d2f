// SPDX-License-Identifier: MIT
// Which row of a matrix the rows of an MFMA operand stand for. The instruction does not care; memory does.
//
// Global memory likes results that lie side by side. LDS likes the lanes it serves together to hit different banks: for a
// 16-byte read those are lanes 0-3 with 20-23, 4-7 with 16-19, 8-11 with 28-31, 12-15 with 24-27, and the same 32 higher;
// for a 16-byte write eight, for 8-byte accesses sixteen consecutive lanes (gfx942; AMD's CK Tile documentation, page
// "Understanding AMD GPU LDS and Bank Conflicts").
#pragma once

/// Row r (0 .. 15) of tile `tile` (0 .. 3) when four tiles interleave in 64 rows. Results come as rows 4 * g + i of a tile
/// (g = lane / 16, i = 0 .. 3): over four tiles that is the 16 consecutive rows 16 * g + 4 * tile + i, one wide store.
__device__ __forceinline__ int interleaved_row(int tile, int r) { return (r >> 2) * 16 + tile * 4 + (r & 3); }

/// Row r of tile `tile` when pairs of tiles interleave in 32 rows: results 4 * g + i of a pair are the 8 consecutive rows
/// 8 * g + 4 * (tile % 2) + i. As contraction indices of a following product those are one 16-byte read.
__device__ __forceinline__ int paired_row(int tile, int r) {
    return (tile >> 1) * 32 + (r >> 2) * 8 + (tile & 1) * 4 + (r & 3);
}
