// SPDX-License-Identifier: MIT
// Panels of 16-bit values in LDS: rows of keys as memory has them (for q k^T), and transposed (for p v).
#pragma once

#include "tile/operand_rows.h"
#include "tile/swizzle.h"

constexpr int kHalvesPerChunk = kChunk / 2;

/// For rows that are read by paired_row and written row by row.
struct KeyOfPairedRows {
    static constexpr int kMask = 7;
    static __device__ __forceinline__ int of(int row) { return (row & 3) | (row >> 1 & 4); }
};

/// For rows of `Chunks` chunks that are read by interleaved_row and written at rows eight apart.
template <int Chunks>
struct KeyOfInterleavedRows {
    static constexpr int kMask = 7;
    static __device__ __forceinline__ int of(int row) { return ((row >> 3) ^ (row & 1) ^ (row << 1 & 4)) & 7; }
};

template <>
struct KeyOfInterleavedRows<4> {  // two rows fill all banks
    static constexpr int kMask = 3;
    static __device__ __forceinline__ int of(int row) { return ((row >> 3) ^ (row >> 1 & 1)) & 3; }
};

/// One row per key, `Columns` values long.
template <int Columns>
using KeyPanel = Swizzle<Columns * 2, KeyOfPairedRows>;

/// One row per value column, `Keys` keys long.
template <int Keys>
using ValuePanel = Swizzle<Keys * 2, KeyOfInterleavedRows<Keys / kHalvesPerChunk>>;

/// The operands of two consecutive MFMA steps in one 16-byte chunk.
__device__ __forceinline__ u32x2 first_step(u32x4 chunk) { return u32x2{chunk[0], chunk[1]}; }
__device__ __forceinline__ u32x2 second_step(u32x4 chunk) { return u32x2{chunk[2], chunk[3]}; }
