// SPDX-License-Identifier: MIT
// Turns a tile of values over in shared memory: wgmma reads FP8 operands only with the summed dimension, the keys, contiguous.
//
// ldmatrix.trans moves pairs of bytes: a lane (g = lane / 4, t = lane % 4) gets columns 2g and 2g + 1 of keys 2t and 2t + 1. Of
// two such matrices, keys 0 .. 7 and 8 .. 15, one byte permute collects column 2g of keys 2t, 2t + 1, 2t + 8, 2t + 9 and another
// one column 2g + 1. Four lanes' words make up 16 keys of a column in the order 0 1 8 9, 2 3 10 11, 4 5 12 13, 6 7 14 15. That is
// the order in which the accumulators of Q K^T, rounded, lie in the registers of an A operand (ptx/wgmma.h): neither side has to
// exchange anything between lanes.
//
// stmatrix writes eight columns' words at a time. Lanes with g >= 4 swap their two words, so that these are columns 0, 2, 4, 6, 9,
// 11, 13, 15 or the others: eight different swizzle keys, no bank twice.
#pragma once

#include <cstdint>

#include "ptx/ldmatrix.h"
#include "ptx/permute_bytes.h"
#include "ptx/stmatrix.h"
#include "tile/swizzle.h"
#include "tile/wgmma_flash_fp8_shape.h"

/// Write the tile of V at `raw`, [kHeadDim / kRowBytes][kKeys] rows, to `values`, [kKeys / 128][kHeadDim] rows of 128 keys.
/// `warp` counts the kTransposers warps that share the work.
template <class Shape>
__device__ __forceinline__ void transpose_values(uint32_t raw, uint32_t values, int warp, int lane) {
    constexpr int kColumns = Shape::kHeadDim / 32;   // of 32 columns
    constexpr int kItems = Shape::kKeys / 32 * kColumns;
    const bool upper = lane >= 16;
    const uint32_t first = upper ? 0x7531u : 0x6420u, second = upper ? 0x6420u : 0x7531u;
    // Where this lane's row of a stored matrix goes: matrices are keys 0 .. 15 (first, second), keys 16 .. 31 (first, second).
    const int matrix = lane / 8, row = lane % 8;
    const int column = 2 * row + ((row >= 4) != (matrix % 2 != 0) ? 1 : 0);
    for (int item = warp; item < kItems; item += Shape::kTransposers) {
        const int keys = item / kColumns * 32, columns = item % kColumns * 32;
        const uint32_t from = raw + columns / Shape::kRowBytes * Shape::kKeyPitch;
        const int chunk = columns % Shape::kRowBytes / 16;
        const uint32_t to = values + keys / 128 * Shape::kValuePitch +
                            Swizzle<8>::offset(columns + column, keys % 128 / 16 + matrix / 2);
        uint32_t d[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            ldmatrix_x4_trans(d[i], from + Swizzle<Shape::kRowChunks>::offset(keys + lane, chunk + i));
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t words[4] = {
                permute_bytes(d[i][0], d[i][1], first), permute_bytes(d[i][0], d[i][1], second),
                permute_bytes(d[i][2], d[i][3], first), permute_bytes(d[i][2], d[i][3], second)};
            stmatrix_x4(to + i * 16 * 128, words);
        }
    }
}
