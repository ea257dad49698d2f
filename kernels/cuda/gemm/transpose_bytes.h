// SPDX-License-Identifier: MIT
// Turns byte matrices whose columns are contiguous into ones whose rows are, at the speed of memory and without shared memory.
//
// A thread takes 16 x 16 bytes: 16 loads of 16 bytes, all on their way at once, 128 byte permutes in registers, 16 stores of 16
// bytes. The lanes of a warp lie so that loads cover whole 32-byte sectors and stores do: with 4 chunks of rows, a load touches
// 8 columns by 64 bytes and a store 4 rows by 128 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "common/launch_cluster.h"
#include "common/transpose_words.h"
#include "ptx/launch_dependency.h"

#ifndef ROW_CHUNKS
#error "ROW_CHUNKS is a tunable of the kernel file: 16-byte chunks of rows that one load of a warp covers"
#endif

namespace gemm {

constexpr int kTransposeThreads = 128;
constexpr int kTransposeRows = 16 * ROW_CHUNKS, kTransposeColumns = 16 * (32 / ROW_CHUNKS);  // of a warp's tile

/// In which order the columns of a row, 16 at a time, are written.
enum class ColumnOrder {
    kNatural,
    kPaired,  // 0 1 8 9, 2 3 10 11, 4 5 12 13, 6 7 14 15: that of gemm/mn_major_a.h
};

/// target[rows][columns] = source[columns][rows]; rows and columns are multiples of 16, both pointers 16-byte aligned.
struct ByteTransposition {
    const uint8_t* source;
    uint8_t* target;
    int rows, columns;

    WARPWAVE_HOST_DEVICE int row_tiles() const { return ceil_div(rows, kTransposeRows); }
    WARPWAVE_HOST_DEVICE int tiles() const { return row_tiles() * ceil_div(columns, kTransposeColumns); }
};

/// This lane's 16 x 16 bytes of tile `tile`. Plain loads: what they read may be the previous kernel's.
template <ColumnOrder kOrder>
__device__ __forceinline__ void transpose_tile(const ByteTransposition& t, int tile, int lane) {
    const int row_tiles = t.row_tiles();
    const int row = tile % row_tiles * kTransposeRows + lane % ROW_CHUNKS * 16;
    const int column = tile / row_tiles * kTransposeColumns + lane / ROW_CHUNKS * 16;
    if (row >= t.rows || column >= t.columns) return;

    uint32_t words[16][4];  // [column][four rows]
    const uint8_t* from = t.source + static_cast<size_t>(column) * t.rows + row;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const uint4 four = *reinterpret_cast<const uint4*>(from + static_cast<size_t>(i) * t.rows);
        words[i][0] = four.x;
        words[i][1] = four.y;
        words[i][2] = four.z;
        words[i][3] = four.w;
    }
    // The columns that four neighbours of the result come from: first + next<i>.
    constexpr bool kPaired = kOrder == ColumnOrder::kPaired;
    constexpr int kFour = kPaired ? 2 : 4, kNext[4] = {0, 1, kPaired ? 8 : 2, kPaired ? 9 : 3};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int c = i * kFour;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            transpose_words(words[c][j], words[c + kNext[1]][j], words[c + kNext[2]][j], words[c + kNext[3]][j]);
        }
    }
    uint8_t* to = t.target + static_cast<size_t>(row) * t.columns + column;
#pragma unroll
    for (int j = 0; j < 16; ++j) {  // row j: byte j % 4 of word j / 4, which word j % 4 of each four columns holds now
        const int at = kNext[j % 4], word = j / 4;
        *reinterpret_cast<uint4*>(to + static_cast<size_t>(j) * t.columns) = make_uint4(
            words[at][word], words[kFour + at][word], words[2 * kFour + at][word], words[3 * kFour + at][word]);
    }
}

/// Two transpositions in one launch, a tile per warp.
template <ColumnOrder kOrder>
__global__ void __launch_bounds__(kTransposeThreads)
    transpose_bytes(const ByteTransposition first, const ByteTransposition second) {
    grid_dependency_wait();
    grid_dependency_release();
    const int warp = blockIdx.x * (kTransposeThreads / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    const int firsts = first.tiles();
    if (warp < firsts) {
        transpose_tile<kOrder>(first, warp, lane);
    } else if (warp - firsts < second.tiles()) {
        transpose_tile<kOrder>(second, warp - firsts, lane);
    }
}

/// Returns 0 or the runtime's error. One that is {} does nothing.
template <ColumnOrder kOrder = ColumnOrder::kNatural>
int launch_transpositions(const ByteTransposition& first, const ByteTransposition& second, bool early, void* queue) {
    const int blocks = ceil_div(first.tiles() + second.tiles(), kTransposeThreads / 32);
    return launch_cluster(transpose_bytes<kOrder>, blocks, kTransposeThreads, 1, 0, early, queue, first, second);
}

}  // namespace gemm
