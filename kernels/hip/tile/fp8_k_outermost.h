// SPDX-License-Identifier: MIT
// Global to LDS for operands whose contiguous direction is the row index (K outermost): 16-byte loads along the rows, and a
// byte transpose in registers on the way into LDS, where K is innermost as MFMA wants it.
//
// A task is 16 rows by 8 values of k: eight loads, of which eight lanes cover 128 consecutive bytes each. Transposed, a task
// is 8 bytes of 16 rows: sixteen 8-byte stores. For one store, eight lanes are 16 rows apart each and the next eight lanes
// write the other half of the same 16-byte chunks, which the keys of tile/fp8_panel.h spread over all banks.
#pragma once

#include "isa/buffer.h"
#include "tile/fp8_panel.h"
#include "tile/transpose.h"

constexpr int kTaskRows = 16, kTaskValues = 8;

/// Tasks of a panel of `rows` rows.
constexpr int k_outermost_tasks(int rows) { return rows / kTaskRows * (kBlockK / kTaskValues); }

/// What a thread copies in one round: which panel, and where in it. Everything but `row` and `k` is the same in all lanes of
/// a wave, so nothing here branches: a prefetch that branches is waited for where the branches meet.
struct KOutermostTask {
    const uint8_t* matrix;  // first row of the tile, k = 0
    int pitch;              // bytes from one k to the next
    int left;               // rows of the matrix from the tile's first one on; 0 for a wave without work
    int row, k;             // of the task, within the panel

    /// Lane `lane` of the wave whose tasks in a panel of `rows` rows begin at `first`.
    __device__ __forceinline__ void place(int first, int lane, int rows) {
        const int task = first + lane;
        const int adjacent = rows < 8 * kTaskRows ? rows / kTaskRows : 8;  // lanes next to each other along the rows
        const int outer = task / adjacent;
        constexpr int kAlongK = kBlockK / kTaskValues;
        k = outer % kAlongK * kTaskValues;
        row = (outer / kAlongK * adjacent + task % adjacent) * kTaskRows;
    }

    __device__ __forceinline__ void load(int block, u32x4 (&held)[kTaskValues]) const {
        const uint8_t* values = matrix + static_cast<size_t>(block) * kBlockK * static_cast<size_t>(pitch);
        const BufferResource buffer = make_buffer(values, left == 0 ? 0 : (kBlockK - 1) * pitch + left);
        const int offset = row < left ? k * pitch + row : kOutside;
#pragma unroll
        for (int i = 0; i < kTaskValues; ++i) held[i] = buffer_load_16(buffer, offset, i * pitch);
    }

    __device__ __forceinline__ void store(const u32x4 (&held)[kTaskValues], uint8_t* panel) const {
        const int base = Fp8Rows::offset(row, k / kChunk) + k % kChunk;
#pragma unroll
        for (int quad = 0; quad < 4; ++quad) {
            const u32x4 low = transpose_bytes_4x4(held[0][quad], held[1][quad], held[2][quad], held[3][quad]);
            const u32x4 high = transpose_bytes_4x4(held[4][quad], held[5][quad], held[6][quad], held[7][quad]);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int place = Fp8Rows::at(base, 4 * quad + i, 0);
                *reinterpret_cast<u32x2*>(panel + place) = u32x2{low[i], high[i]};
            }
        }
    }
};

/// Both operands of a tile of c. Rows come in groups of 16: m and n are multiples of 16.
struct KOutermost {
    template <int RowsA, int RowsB, int Threads>
    class Loader {
        static constexpr int kTasksA = k_outermost_tasks(RowsA), kTasksB = k_outermost_tasks(RowsB);
        static_assert(kTasksA % kWaveSize == 0 && kTasksB % kWaveSize == 0, "a wave works on one panel");
        static_assert(kTasksA + kTasksB <= Threads, "one task per thread");

        KOutermostTask task_;
        bool on_b_, busy_;
        u32x4 held_[kTaskValues];

    public:
        /// Waves take B's tasks first, then A's; what is left has nothing to copy.
        template <class Problem>
        __device__ __forceinline__ Loader(const Problem& problem, int row, int column) {
            const int first = wave_id() * kWaveSize;
            on_b_ = first < kTasksB;
            busy_ = first < kTasksB + kTasksA;
            task_.matrix = on_b_ ? problem.b + column : problem.a + row;
            task_.pitch = on_b_ ? problem.n : problem.m;
            task_.left = !busy_ ? 0 : on_b_ ? problem.n - column : problem.m - row;
            task_.place(on_b_ ? first : first - kTasksB, lane_id(), on_b_ ? RowsB : RowsA);
        }

        /// Request K block `block`.
        __device__ __forceinline__ void load(int block) { task_.load(block, held_); }

        /// Wait for what was requested and put it into LDS.
        __device__ __forceinline__ void store(Fp8Panel<RowsA>& a, Fp8Panel<RowsB>& b) const {
            if (busy_) task_.store(held_, on_b_ ? b.bytes : a.bytes);
        }
    };
};
