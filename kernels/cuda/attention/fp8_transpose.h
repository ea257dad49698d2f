// SPDX-License-Identifier: MIT
// Values in e4m3 made K-major for wgmma, tile by tile in shared memory; and where they lie when all blocks share them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/fp8_shape.h"
#include "ceil_div.h"
#include "common/swizzle.h"
#include "ptx/convert.h"
#include "ptx/launch_dependency.h"
#include "ptx/ldst.h"

namespace attention {

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

/// Write the tile of V at `raw`, [kHeadDim / kRowBytes][kKeys] rows, to `values`, [kKeys / 128][kHeadDim] rows of 128 keys.
/// `warp` counts the kTransposers warps that share the work. An item is 16 columns of kAtOnce times 32 keys: one address to load
/// from and one to store to, as the keys differ in bits that a constant sets. Items have no sign, so that quotients are shifts.
template <class Shape>
__device__ __forceinline__ void transpose_values(uint32_t raw, uint32_t values, int warp, int lane) {
    constexpr unsigned kColumns = Shape::kHeadDim / 16;
    constexpr unsigned kAtOnce = Shape::kFewRegisters || Shape::kHeadDim == 64 || Shape::kKeys % 128 != 0 ? 2 : 4;
    constexpr unsigned kItems = Shape::kKeys / 32 / kAtOnce * kColumns, kWarps = Shape::kTransposers;
    static_assert(Shape::kKeys % (32 * kAtOnce) == 0, "whole items");
    const bool upper = lane >= 16;
    const uint32_t first = upper ? 0x7531u : 0x6420u, second = upper ? 0x6420u : 0x7531u;
    // Where this lane's row of a stored matrix goes: matrices are keys 0 .. 15 (first, second), keys 16 .. 31 (first, second).
    const int matrix = lane / 8, row = lane % 8;
    const int column = 2 * row + ((row >= 4) != (matrix % 2 != 0) ? 1 : 0);
    const uint32_t from_key = Swizzle<Shape::kRowChunks>::key(lane);
    const uint32_t to = values + Swizzle<8>::offset(column, matrix / 2);
#pragma unroll 1
    for (unsigned item = warp; item < kItems; item += kWarps) {
        const unsigned keys = item / kColumns * (32 * kAtOnce), columns = item % kColumns;
        const uint32_t from = raw + columns / Shape::kRowChunks * Shape::kKeyPitch + (keys + lane) * Shape::kRowBytes +
                              ((columns % Shape::kRowChunks ^ from_key) << 4);
        const uint32_t panel = to + keys / 128 * Shape::kValuePitch + columns * 16 * 128;
        uint32_t d[kAtOnce][4];
#pragma unroll
        for (unsigned i = 0; i < kAtOnce; ++i) ldmatrix_x4_trans(d[i], from + i * 32 * Shape::kRowBytes);
#pragma unroll
        for (unsigned i = 0; i < kAtOnce; ++i) {
            const uint32_t words[4] = {
                permute_bytes(d[i][0], d[i][1], first), permute_bytes(d[i][0], d[i][1], second),
                permute_bytes(d[i][2], d[i][3], first), permute_bytes(d[i][2], d[i][3], second)};
            stmatrix_x4(panel ^ (keys % 128 + 32 * i), words);  // 16 keys in a chunk of 16 bytes
        }
    }
}

/// All values transposed, in the workspace: [batch, heads, head_dim, row()], rows end with zeros. Behind them are numbers: the
/// count of tiles taken, and those that Fp8Pieces points to.
struct TransposedValues {
    int batch, tokens, heads, head_dim;

    WARPWAVE_HOST_DEVICE int blocks() const { return ceil_div(tokens, kPieceSide); }
    WARPWAVE_HOST_DEVICE int row() const { return blocks() * kPieceSide; }
    WARPWAVE_HOST_DEVICE int rows() const { return batch * heads * head_dim; }
    size_t bytes() const { return static_cast<size_t>(rows()) * row(); }
    int numbers() const { return 3 + batch * heads * blocks(); }
};

constexpr int kClearThreads = 256;

/// Zero `count` numbers.
__global__ void __launch_bounds__(kClearThreads) clear_numbers(unsigned* numbers, int count) {
    grid_dependency_wait();
    grid_dependency_release();
    const int at = static_cast<int>(blockIdx.x) * kClearThreads + static_cast<int>(threadIdx.x);
    if (at < count) numbers[at] = 0;
}

}  // namespace attention
