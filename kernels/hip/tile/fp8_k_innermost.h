// SPDX-License-Identifier: MIT
// Global to LDS for operands whose contiguous direction is K: rows of k bytes, copied 16 bytes at a time.
#pragma once

#include "isa/buffer.h"
#include "tile/fp8_panel.h"

/// This thread's share of one panel of `Rows` rows, while it is on its way.
template <int Rows, int Threads>
class KInnermostPanel {
    static constexpr int kChunksPerRow = kBlockK / kChunk;
    static constexpr int kRowsPerPass = Threads / kChunksPerRow;
    static constexpr int kPasses = Rows / kRowsPerPass;
    static_assert(Rows % kRowsPerPass == 0, "every thread copies equally much");

    BufferResource rows_;
    int k_;
    u32x4 held_[kPasses];

    static __device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x) / kChunksPerRow; }
    static __device__ __forceinline__ int chunk() { return static_cast<int>(threadIdx.x) % kChunksPerRow; }

public:
    /// Rows [first, first + Rows) of a [count, k] matrix. Rows from `count` on read as zero.
    __device__ __forceinline__ KInnermostPanel(const uint8_t* matrix, int first, int count, int k) : k_(k) {
        const int rows = count - first < Rows ? count - first : Rows;
        rows_ = make_buffer(matrix + static_cast<size_t>(first) * static_cast<size_t>(k), rows * k);
    }

    /// Request K block `block`.
    __device__ __forceinline__ void load(int block) {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            const int offset = (row() + pass * kRowsPerPass) * k_ + chunk() * kChunk;
            held_[pass] = buffer_load_16(rows_, offset, block * kBlockK);
        }
    }

    /// Wait for what was requested and put it into LDS.
    __device__ __forceinline__ void store(Fp8Panel<Rows>& panel) const {
        const int base = Fp8Rows::offset(row(), chunk());
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass)
            write_chunk(panel.bytes, Fp8Rows::at(base, pass * kRowsPerPass, 0), held_[pass]);
    }
};

/// Both operands of a tile of c.
struct KInnermost {
    template <int RowsA, int RowsB, int Threads>
    struct Loader {
        KInnermostPanel<RowsA, Threads> a;
        KInnermostPanel<RowsB, Threads> b;

        template <class Problem>
        __device__ __forceinline__ Loader(const Problem& problem, int row, int column)
            : a(problem.a, row, problem.m, problem.k), b(problem.b, column, problem.n, problem.k) {}

        __device__ __forceinline__ void load(int block) {
            a.load(block);
            b.load(block);
        }

        __device__ __forceinline__ void store(Fp8Panel<RowsA>& panel_a, Fp8Panel<RowsB>& panel_b) const {
            a.store(panel_a);
            b.store(panel_b);
        }
    };
};
