// SPDX-License-Identifier: MIT
// Global to LDS for operands with K outermost, half a K block at a time (tile/fp8_half_panel.h): 16-byte loads along the
// rows, a byte transpose in registers on the way into LDS.
//
// One panel has the rows of both operands: A's first, then B's. A task is 16 rows by 4 values of k: four loads, of which
// eight lanes cover 128 consecutive bytes each, and sixteen 4-byte stores. For one store, 32 lanes are 8 groups of rows by
// one 16-byte chunk, which the keys spread over all banks. Every thread has one task, so that nothing branches and all of it
// can be put between matrix instructions.
#pragma once

#include "isa/buffer.h"
#include "tile/fp8_half_panel.h"
#include "tile/transpose.h"

constexpr int kQuadRows = 16, kQuadValues = 4;

/// What a thread has on the way of half a K block.
struct HeldQuad {
    u32x4 row[kQuadValues];
};

/// This thread's task in every half block of a panel of RowsA + RowsB rows.
template <int RowsA, int RowsB, int Threads>
class HalfBlockLoader {
    static constexpr int kRowsOfTwoWaves = 128;
    static_assert(RowsA % kRowsOfTwoWaves == 0 && RowsB % kRowsOfTwoWaves == 0, "a wave's task is of one operand");
    static_assert(RowsA + RowsB == Threads, "one task per thread, as many values as a row has");

    const bool on_b_;
    const int pitch_;           // bytes from one k to the next
    const int in_operand_, k_;  // of this thread's task
    const int store_;           // where its first values go
    const uint8_t* matrix_;     // first row of the tile, k = 0
    int load_, bytes_;          // where its first values come from, and what there is of half a block
    BufferResource buffer_;     // the half block that load() takes

    static __device__ __forceinline__ int first() { return wave_id() / 2 * kRowsOfTwoWaves; }
    static __device__ __forceinline__ int in_panel() { return first() + lane_id() % 8 * kQuadRows; }

public:
    static constexpr int kRows = Threads;  // of the panel

    template <class Problem>
    __device__ __forceinline__ explicit HalfBlockLoader(const Problem& problem)
        : on_b_(first() >= RowsA), pitch_(on_b_ ? problem.n : problem.m), in_operand_(in_panel() - (on_b_ ? RowsA : 0)),
          k_(wave_id() % 2 * (kHalfBlockK / 2) + lane_id() / 8 * kQuadValues),
          store_(Fp8HalfRows::offset(in_panel(), k_ / kChunk) + k_ % kChunk) {}

    /// From now on load rows of a from `row` on, of b from `column` on; nothing (zeros) if not `there`.
    template <class Problem>
    __device__ __forceinline__ void turn_to(const Problem& problem, int row, int column, bool there) {
        matrix_ = on_b_ ? problem.b + column : problem.a + row;
        const int left = on_b_ ? problem.n - column : problem.m - row;
        bytes_ = there ? (kHalfBlockK - 1) * pitch_ + left : 0;
        load_ = in_operand_ < left ? k_ * pitch_ + in_operand_ : kOutside;
    }

    /// Turn to half block `half`.
    __device__ __forceinline__ void at(int half) {
        const uint8_t* values = matrix_ + static_cast<size_t>(half) * kHalfBlockK * static_cast<size_t>(pitch_);
        buffer_ = make_buffer(values, bytes_);
    }

    /// Request one half (0 or 1) of this thread's values there.
    __device__ __forceinline__ void load(int part, HeldQuad& held) const {
#pragma unroll
        for (int i = 2 * part; i < 2 * part + 2; ++i) held.row[i] = buffer_load_16(buffer_, load_, i * pitch_);
    }

    /// Wait for what was requested and put a quarter of it, four rows, into LDS.
    __device__ __forceinline__ void store(int quarter, const HeldQuad& held, Fp8HalfPanel<kRows>& panel) const {
        const u32x4 columns =
            transpose_bytes_4x4(held.row[0][quarter], held.row[1][quarter], held.row[2][quarter], held.row[3][quarter]);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            *reinterpret_cast<uint32_t*>(panel.bytes + Fp8HalfRows::at(store_, 4 * quarter + i)) = columns[i];
    }
};
