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

// Turns values over in shared memory: wgmma reads FP8 operands only with the summed dimension, the keys, contiguous.
//
// A square of as many keys as columns is transposed in place: its rows are keys before and columns after, in the same swizzle. So
// a tile needs no second buffer, and twice as many tiles can be under way. A warp exchanges two blocks of 16 x 16 bytes, which lie
// at (r, s) and (s, r), or turns over two blocks of the diagonal.
//
// ldmatrix.trans moves pairs of bytes: a lane (g = lane / 4, t = lane % 4) gets columns 2g and 2g + 1 of keys 2t and 2t + 1. Of
// two such matrices, keys 0 .. 7 and 8 .. 15, one byte permute collects column 2g of keys 2t, 2t + 1, 2t + 8, 2t + 9 and another
// one column 2g + 1. Four lanes' words make up 16 keys of a column in the order 0 1 8 9, 2 3 10 11, 4 5 12 13, 6 7 14 15. That is
// the order in which the accumulators of Q K^T, rounded, lie in the registers of an A operand (ptx/wgmma.h): neither side has to
// exchange anything between lanes.
//
// stmatrix writes eight columns' words at a time. Lanes with g >= 4 swap their two words, so that these are columns 0, 2, 4, 6, 9,
// 11, 13, 15 or the others: eight different swizzle keys, no bank twice.

/// Transpose `kSquares` squares of kSide keys and columns, one behind the other, in place. A square has rows of kSide bytes in
/// the swizzle of that width. `warp` counts the kWarps warps that share the work, which have kAtOnce exchanges under way each.
///
/// Blocks (r, s) with the same r ^ s are exchanged together. All of an address but the square's is bits that r and s flip.
template <unsigned kSide, unsigned kSquares, unsigned kWarps, unsigned kAtOnce>
__device__ __forceinline__ void transpose_squares(uint32_t squares, unsigned warp, unsigned lane) {
    using Rows = Swizzle<kSide / 16>;
    constexpr unsigned kBlocks = kSide / 16;                  // in a row
    constexpr uint32_t kRow = 16 * kSide, kBoth = kRow + 16;  // what one bit of r flips: rows, or also the chunk
    const uint32_t upper = lane / 16;                         // this half of the warp has the exchange's second block
    const uint32_t first = upper != 0 ? 0x7531u : 0x6420u, second = upper != 0 ? 0x6420u : 0x7531u;
    const unsigned key = lane % 16, row = lane % 8;
    const unsigned column = 2 * row + (row / 4 ^ lane / 8 % 2);
    const uint32_t from = Rows::offset(key, 0), to = Rows::offset(column, 0);
#pragma unroll 1
    for (unsigned item = warp; item < kSquares * kBlocks; item += kWarps) {
        const uint32_t apart = item % kBlocks, square = squares + item / kBlocks * (kSide * kSide);
        // Of two blocks to be exchanged the first one's r lacks the lowest bit in which they differ; its other bits are free.
        const uint32_t lowest = apart == 0 ? 1 : apart & (0u - apart);
        const uint32_t bits[2] = {(lowest == 1 ? 2 : 1) * kBoth, (lowest == 4 ? 2 : 4) * kBoth};
        const uint32_t other = upper * max(apart, 1u) * kBoth;
        const uint32_t load = from ^ apart * 16 ^ other, store = to ^ apart * kRow ^ other;
#pragma unroll
        for (unsigned pair = 0; pair < kBlocks / 2; pair += kAtOnce) {
            const auto flips = [&](unsigned i) { return (i % 2 != 0 ? bits[0] : 0) ^ (i / 2 != 0 ? bits[1] : 0); };
            uint32_t d[kAtOnce][4];
#pragma unroll
            for (unsigned i = 0; i < kAtOnce; ++i) ldmatrix_x4_trans(d[i], square + (load ^ flips(pair + i)));
            __syncwarp();  // all blocks have been read
#pragma unroll
            for (unsigned i = 0; i < kAtOnce; ++i) {
                const uint32_t words[4] = {
                    permute_bytes(d[i][0], d[i][1], first), permute_bytes(d[i][0], d[i][1], second),
                    permute_bytes(d[i][2], d[i][3], first), permute_bytes(d[i][2], d[i][3], second)};
                stmatrix_x4(square + (store ^ flips(pair + i)), words);
            }
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
