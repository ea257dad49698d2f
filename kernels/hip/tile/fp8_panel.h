// SPDX-License-Identifier: MIT
// One K block (128 values) of a panel of rows as LDS holds it, and how a wave reads MFMA operands from it.
//
// A row is 128 bytes, exactly the 32 banks, so equal columns of all rows lie in the same banks. Each row is cut into eight
// 16-byte chunks, and chunk c of row x is stored at place c ^ key(x). A lane's two reads per row, chunks g and g + 4 with
// g = lane / 16, give it 32 of the 128 contraction indices: four MFMA steps. Both operands read alike, so the products
// pair up, whatever order of k the instruction believes in.
//
// LDS serves 16-byte accesses eight lanes at a time: lanes 0-3 with 12-15, 4-11, and so on. Which rows the 16 operand rows
// of a tile stand for is free; column_row and interleaved_row make any such eight lanes hit eight different places, for these reads and
// for writes that run down a column of rows 16 apart (tile/fp8_k_outermost.h).
#pragma once

#include "isa/lanes.h"
#include "isa/mfma.h"
#include "isa/types.h"
#include "tile/operand_rows.h"

constexpr int kBlockK = 128;      // values of K per scale, and per panel
constexpr int kChunk = 16;        // bytes

template <int Rows>
struct alignas(16) Fp8Panel {
    uint8_t bytes[Rows * kBlockK];
};

/// Where chunk `chunk` (0 .. 7) of row `row` begins.
__device__ __forceinline__ int fp8_chunk_offset(int row, int chunk) {
    const int key = ((row >> 4) ^ ((row & 3) << 1)) & 7;
    return row * kBlockK + (chunk ^ key) * kChunk;
}

/// Panel row that column `r` (0 .. 15) of MFMA tile `tile` stands for, when a panel is the second operand. Two tiles
/// interleave in 32 rows.
__device__ __forceinline__ int column_row(int tile, int r) {
    return (tile >> 1) * 32 + (tile & 1) * 8 + (r & 1) * 16 + (r >> 1);
}

/// A lane's share of one K block of 16 rows: one MFMA operand per step.
struct Fp8Operand {
    static constexpr int kSteps = 4;
    u32x2 step[kSteps];
};

/// Read the share of the row that this lane stands for.
__device__ __forceinline__ Fp8Operand read_fp8_operand(const uint8_t* panel, int row) {
    const int group = lane_id() / 16;
    const u32x4 first = *reinterpret_cast<const u32x4*>(panel + fp8_chunk_offset(row, group));
    const u32x4 second = *reinterpret_cast<const u32x4*>(panel + fp8_chunk_offset(row, group + 4));
    return {{u32x2{first[0], first[1]}, u32x2{first[2], first[3]}, u32x2{second[0], second[1]}, u32x2{second[2], second[3]}}};
}

/// Sums over one K block, unscaled: row x of `a` times row y of each `b` as 16 x 16 tiles. Independent tiles take turns, so
/// that no MFMA waits for the one before it.
template <int Tiles>
__device__ __forceinline__ void multiply_k_block(
    const Fp8Operand& a, const Fp8Operand (&b)[Tiles], f32x4 (&product)[Tiles]) {
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) product[tile] = f32x4{};
#pragma unroll
    for (int step = 0; step < Fp8Operand::kSteps; ++step)
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile)
            product[tile] = mfma_16x16x32_fp8(a.step[step], b[tile].step[step], product[tile]);
}
