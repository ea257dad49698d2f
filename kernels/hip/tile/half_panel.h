// SPDX-License-Identifier: MIT
// Panels of 16-bit values in LDS: rows of keys as memory has them (for q k^T), and transposed (for p v).
//
// Rows are a multiple of all 32 banks long, so 16-byte chunk c of row x goes to place c ^ key(x): the eight lanes that LDS
// serves together (0-3 with 12-15, 4-11, and so on) then hit eight different places, reading operands by the rows of
// tile/operand_rows.h as well as writing.
#pragma once

#include "isa/lanes.h"
#include "isa/types.h"
#include "tile/operand_rows.h"

constexpr int kHalvesPerChunk = 8;

/// Byte offset of chunk `chunk ^ key`, key below 8, written so that the compiler sees what a constant part of `chunk` adds: its
/// address goes into the instruction instead of a register.
__device__ __forceinline__ int permuted_chunk(int chunk, int key) { return (chunk & ~7) * 16 + ((chunk & 7) ^ key) * 16; }

/// Rows of keys, `Columns` values long: byte offset of a chunk. Read by paired_row, written row by row.
template <int Columns>
__device__ __forceinline__ int key_chunk_offset(int row, int chunk) {
    static_assert(Columns % 64 == 0, "keys permute eight chunks");
    return row * Columns * 2 + permuted_chunk(chunk, (row & 3) | (row >> 1 & 4));
}

/// Rows of one value column, `Keys` keys long: byte offset of a chunk of eight keys. Read by interleaved_row, written at rows
/// eight apart.
template <int Keys>
__device__ __forceinline__ int value_chunk_offset(int row, int chunk) {
    static_assert(Keys == 32 || Keys % 64 == 0, "keys permute four or eight chunks");
    const int key = Keys == 32 ? ((row >> 3) ^ (row >> 1 & 1)) & 3 : ((row >> 3) ^ (row & 1) ^ (row << 1 & 4)) & 7;
    return row * Keys * 2 + permuted_chunk(chunk, key);
}

__device__ __forceinline__ u32x4 read_chunk(const uint8_t* panel, int offset) {
    return *reinterpret_cast<const u32x4*>(panel + offset);
}

__device__ __forceinline__ void write_chunk(uint8_t* panel, int offset, u32x4 value) {
    *reinterpret_cast<u32x4*>(panel + offset) = value;
}

/// The operands of two consecutive MFMA steps in one 16-byte chunk.
__device__ __forceinline__ u32x2 first_step(u32x4 chunk) { return u32x2{chunk[0], chunk[1]}; }
__device__ __forceinline__ u32x2 second_step(u32x4 chunk) { return u32x2{chunk[2], chunk[3]}; }
