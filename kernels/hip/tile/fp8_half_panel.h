// SPDX-License-Identifier: MIT
// Half a K block (64 values) of a panel of rows as LDS holds it, so that two of them fit: one is read while the other is
// written.
//
// A row is 64 bytes, four chunks; rows x and x + 16 share 128 bytes, which are all banks. A lane reads chunk g = lane / 16
// of its row, two MFMA steps. Rows of tiles are those of tile/fp8_panel.h (column_row, interleaved_row). With the key below
// neither these reads nor stores that run down a column of rows 16 apart meet in a bank.
#pragma once

#include "isa/lanes.h"
#include "isa/mfma.h"
#include "tile/fp8_panel.h"

constexpr int kHalfBlockK = kBlockK / 2;

template <int Rows>
struct alignas(16) Fp8HalfPanel {
    static_assert(Rows % 32 == 0, "rows come in pairs 16 apart");
    uint8_t bytes[Rows * kHalfBlockK];
};

/// Where chunks lie; every bit of a row adds to the address, or to the key, by itself.
struct Fp8HalfRows {
    static constexpr int kValues = kHalfBlockK;

    static __device__ __forceinline__ int key(int row) { return (row ^ row >> 5) & 3; }
    static __device__ __forceinline__ int place(int row) {
        return (row >> 5) * 32 * kHalfBlockK + (row & 15) * 2 * kHalfBlockK + (row >> 4 & 1) * kHalfBlockK;
    }

    /// Byte offset of chunk `chunk` of row `row`.
    static __device__ __forceinline__ int offset(int row, int chunk) {
        return place(row) + (chunk ^ key(row)) * kChunk;
    }

    /// offset(r + row, c), given base = offset(r, c), where r and row have no common bits.
    static __device__ __forceinline__ int at(int base, int row) { return (base ^ key(row) * kChunk) + place(row); }
};

/// A lane's share of half a K block of 16 rows: one MFMA operand per step.
struct Fp8HalfOperand {
    static constexpr int kSteps = 2;
    u32x2 step[kSteps];
};

/// Where this lane reads row `row`.
__device__ __forceinline__ int fp8_half_base(int row) { return Fp8HalfRows::offset(row, lane_id() / 16); }

/// Read this lane's share of the row `constant_row` beyond the one of `base` (no bits in common).
__device__ __forceinline__ Fp8HalfOperand read_fp8_half(const uint8_t* panel, int base, int constant_row) {
    const u32x4 both = read_chunk(panel, Fp8HalfRows::at(base, constant_row));
    return {{u32x2{both[0], both[1]}, u32x2{both[2], both[3]}}};
}

/// product += row x of `a` times row y of each `b`. Independent tiles take turns, so that no MFMA waits for the one before.
template <int Tiles>
__device__ __forceinline__ void multiply_half_block(
    const Fp8HalfOperand& a, const Fp8HalfOperand (&b)[Tiles], f32x4 (&product)[Tiles]) {
#pragma unroll
    for (int step = 0; step < Fp8HalfOperand::kSteps; ++step)
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile)
            product[tile] = mfma_16x16x32_fp8(a.step[step], b[tile].step[step], product[tile]);
}
