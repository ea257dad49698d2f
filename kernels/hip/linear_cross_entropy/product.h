// SPDX-License-Identifier: MIT
// A workgroup's product of two bf16 panels on MFMA 16x16x16, 128 x 128 outputs, each panel with K innermost or outermost in
// memory.
//
// In LDS every panel has K innermost, 128 rows of 64: one with K outermost is transposed on the way, 8 x 8 values at a time
// in registers. Half of the threads fetch the left panel, half the right one, a step ahead.
#pragma once

#include <stddef.h>

#include "isa/buffer.h"
#include "isa/schedule.h"
#include "tile/half.h"
#include "tile/half_panel.h"
#include "tile/transpose.h"

namespace loss {

constexpr int kTile = 128;  // outputs of a panel
constexpr int kStep = 64;   // of K at a time
constexpr int kThreads = 256;
constexpr int kLoads = 8;  // 16-byte loads of a thread per step
constexpr int kTasks = kThreads / 2;

/// For rows that are written one after the other or eight apart, and read by sixteen neighbours.
struct KeyOfRows {
    static constexpr int kMask = 7;
    static __device__ __forceinline__ int of(int row) { return (row ^ row >> 3) & 7; }
};
using Rows = Swizzle<kStep * 2, KeyOfRows>;

struct alignas(16) Panels {
    uint8_t left[kTile * kStep * 2];
    uint8_t right[kTile * kStep * 2];
};

/// Where a panel lies in global memory. `from`: its first output at K = 0; `pitch`: bytes from row to row, below 2^22.
struct Operand {
    const uint8_t* from;
    int pitch;
    int outputs;     // that exist, of kTile
    int k;           // that exist; a multiple of 8 where K is innermost
    bool outermost;  // K: the same in all lanes
};

/// This thread's share of its panel, on the way to LDS. What lies beyond `outputs` and `k` becomes zero.
class Loader {
    Operand operand_;
    int task_;
    u32x4 held_[kLoads];

public:
    __device__ __forceinline__ Loader(const Operand& left, const Operand& right)
        : operand_(wave_id() < kTasks / kWaveSize ? left : right), task_(static_cast<int>(threadIdx.x) % kTasks) {}

    __device__ __forceinline__ void load(int first) {
        const size_t pitch = static_cast<size_t>(operand_.pitch);
        if (operand_.outermost) {
            // 8 rows of K by a chunk of 8 outputs.
            const int left = operand_.k - first, rows = left < kStep ? left : kStep;
            const BufferResource buffer =
                make_buffer(operand_.from + static_cast<size_t>(first) * pitch, extent(rows, operand_.outputs * 2));
            const int chunk = task_ % 16, row = task_ / 16 * 8;
#pragma unroll
            for (int i = 0; i < kLoads; ++i)
                held_[i] = buffer_load_16(
                    buffer, chunk * 8 < operand_.outputs ? (row + i) * operand_.pitch + chunk * kChunk : kOutside);
        } else {
            // A chunk of 8 of K in each of 8 outputs' rows.
            const int rows = operand_.outputs < kTile ? operand_.outputs : kTile;
            const BufferResource buffer = make_buffer(operand_.from + first * 2, extent(rows, kStep * 2));
            const int chunk = task_ % 8, row = task_ / 8;
#pragma unroll
            for (int i = 0; i < kLoads; ++i)
                held_[i] = buffer_load_16(buffer, (row + i * (kTasks / 8)) * operand_.pitch + chunk * kChunk);
        }
    }

    __device__ __forceinline__ void store(Panels& panels) const {
        uint8_t* const panel = wave_id() < kTasks / kWaveSize ? panels.left : panels.right;
        if (operand_.outermost) {
            u32x4 columns[kLoads];
            transpose_halves(held_, columns);
            const int base = Rows::offset(task_ % 16 * 8, task_ / 16);
#pragma unroll
            for (int i = 0; i < kLoads; ++i) write_chunk(panel, Rows::at(base, i, 0), columns[i]);
        } else {
            const int base = Rows::offset(task_ / 8, task_ % 8);
#pragma unroll
            for (int i = 0; i < kLoads; ++i) write_chunk(panel, Rows::at(base, i * (kTasks / 8), 0), held_[i]);
        }
    }

private:
    __device__ __forceinline__ int extent(int rows, int width) const {
        return rows > 0 ? (rows - 1) * operand_.pitch + width : 0;
    }
};

/// One wave's share of the outputs, 64 of the left panel by 64 of the right one: sums[i][j][e] is output row(i, e) of the left
/// panel and column(j) of the right one.
struct Share {
    f32x4 sums[4][4];

    static __device__ __forceinline__ int row(int i, int e) {
        return wave_id() % 2 * 64 + i * 16 + lane_id() / 16 * 4 + e;
    }
    static __device__ __forceinline__ int column(int j) { return wave_id() / 2 * 64 + j * 16 + lane_id() % 16; }
};

/// sums = left rightᵀ over K = 0 .. k - 1. Begins and ends with nobody using `panels`.
__device__ __forceinline__ void multiply(
    Share& share, const Operand& left, const Operand& right, int k, Panels& panels) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) share.sums[i][j] = f32x4{};
    const int r = lane_id() % 16, g = lane_id() / 16;
    const int rows = Rows::offset(wave_id() % 2 * 64 + r, g), columns = Rows::offset(wave_id() / 2 * 64 + r, g);
    Loader loader(left, right);
    loader.load(0);
    wait_for_loads();
    for (int first = 0; first < k; first += kStep) {
        loader.store(panels);
        __syncthreads();
        if (first + kStep < k) loader.load(first + kStep);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            u32x4 a[4], b[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                a[i] = read_chunk(panels.left, Rows::at(rows, i * 16, half * 4));
                b[i] = read_chunk(panels.right, Rows::at(columns, i * 16, half * 4));
            }
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    share.sums[i][j] = Bf16::multiply(first_step(a[i]), first_step(b[j]), share.sums[i][j]);
                    share.sums[i][j] = Bf16::multiply(second_step(a[i]), second_step(b[j]), share.sums[i][j]);
                }
        }
        __syncthreads();
    }
}

}  // namespace loss
