// SPDX-License-Identifier: MIT
// Rows of 16-bit values from transposed sums (columns are MFMA rows, queries columns) whose operands were interleaved_row.
#pragma once

#include "isa/buffer.h"
#include "isa/lanes.h"

/// Bytes of `rows` (any sign) rows of `width` bytes that begin `pitch` bytes apart.
__device__ __forceinline__ int extent(int rows, int pitch, int width) {
    return rows > 0 ? (rows - 1) * pitch + width : 0;
}

/// Store sum * factor of 16 queries, the first of which is row `first` of `out`; rows beyond it are dropped. With r = lane % 16
/// and g = lane / 16, sum[4 * a + b][i] is column 64 a + 16 g + 4 b + i of query r.
template <class Half, int Tiles>
__device__ __forceinline__ void store_query_row(
    BufferResource out, const f32x4 (&sum)[Tiles], int first, int pitch, float factor) {
    static_assert(Tiles % 4 == 0, "four tiles interleave in 64 columns");
    const int r = lane_id() % 16, g = lane_id() / 16;
#pragma unroll
    for (int a = 0; a < Tiles / 4; ++a)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const f32x4 x = sum[4 * a + 2 * half] * factor, y = sum[4 * a + 2 * half + 1] * factor;
            const u32x4 packed = {
                Half::pack(x[0], x[1]), Half::pack(x[2], x[3]), Half::pack(y[0], y[1]), Half::pack(y[2], y[3])};
            buffer_store_16(out, (first + r) * pitch + (64 * a + 16 * g + 8 * half) * 2, packed);
        }
}
