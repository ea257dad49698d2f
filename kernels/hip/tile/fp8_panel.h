// SPDX-License-Identifier: MIT
// One K block (128 values) of a panel of rows as LDS holds it, and how a wave reads MFMA operands from it.
//
// A row is 128 bytes, exactly the 32 banks, and its eight chunks are permuted (tile/swizzle.h). A lane reads chunks 2 g and
// 2 g + 1 of its row (g = lane / 16), which gives it 32 of the 128 contraction indices: four MFMA steps. Both operands
// read alike, so the products pair up, whatever order of k the instruction believes in.
//
// Which rows the 16 operand rows of a tile stand for is free. column_row and interleaved_row are chosen so that neither
// these reads nor writes that run down a column of rows 16 apart (tile/fp8_k_outermost.h) meet in a bank.
#pragma once

#include "isa/lanes.h"
#include "isa/mfma.h"
#include "tile/operand_rows.h"
#include "tile/swizzle.h"

constexpr int kBlockK = 128;  // values of K per scale, and per panel

template <int Rows>
struct alignas(16) Fp8Panel {
    uint8_t bytes[Rows * kBlockK];
};

struct KeyOfFp8Rows {
    static constexpr int kMask = 7;
    static __device__ __forceinline__ int of(int row) { return ((row >> 4) ^ (row << 1 & 6)) & 7; }
};

using Fp8Rows = Swizzle<kBlockK, KeyOfFp8Rows>;

/// Panel row that column `r` (0 .. 15) of MFMA tile `tile` stands for, when a panel is the second operand: two tiles
/// interleave in 32 rows.
__device__ __forceinline__ int column_row(int tile, int r) {
    return (tile >> 1) * 32 + (tile & 1) * 8 + (r & 1) * 16 + (r >> 1);
}

/// A lane's share of one K block of 16 rows: one MFMA operand per step.
struct Fp8Operand {
    static constexpr int kSteps = 4;
    u32x2 step[kSteps];
};

/// Where this lane reads row `row`.
__device__ __forceinline__ int fp8_operand_base(int row) { return Fp8Rows::offset(row, lane_id() / 16 * 2); }

/// Read this lane's share of the row `constant_row` beyond the one of `base` (no bits in common).
__device__ __forceinline__ Fp8Operand read_fp8_operand(const uint8_t* panel, int base, int constant_row) {
    const u32x4 first = read_chunk(panel, Fp8Rows::at(base, constant_row, 0));
    const u32x4 second = read_chunk(panel, Fp8Rows::at(base, constant_row, 1));
    return {
        {u32x2{first[0], first[1]}, u32x2{first[2], first[3]}, u32x2{second[0], second[1]},
         u32x2{second[2], second[3]}}};
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
