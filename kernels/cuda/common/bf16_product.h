// SPDX-License-Identifier: MIT
// A block's product of two bf16 panels on mma.sync, 128 x 128 outputs, each panel with K innermost or outermost in memory.
//
// The layout of each panel is a template parameter, since layers store their weights either way. A panel with K
// outermost lies in shared memory as in global memory; ldmatrix transposes it on the way to the registers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/attention_mma.h"
#include "common/wide_rows.h"
#include "ptx/cp_async.h"
#include "ptx/ldst.h"
#include "ptx/mma.h"

namespace product {

constexpr int kTile = 128;     // outputs of a panel
constexpr int kStep = 64;      // of K at a time
constexpr int kThreads = 256;  // warps: four along the left panel's outputs by two along the right one's
constexpr int kPanelBytes = kTile * kStep * 2;
constexpr int kStageBytes = 2 * kPanelBytes;
constexpr int kSharedBytes = 2 * kStageBytes;

/// Where a panel lies in global memory. `from`: its first output at K = 0; `pitch`: bytes from row to row.
struct Operand {
    const uint8_t* from;
    size_t pitch;
    int outputs;  // that exist, of kTile
    int k;        // that exist
};

/// Copy `kRows` rows of `kColumns` elements to a swizzled tile; what lies beyond `rows` or `columns` becomes zero.
template <int kRows, int kColumns>
__device__ __forceinline__ void copy_tile(uint32_t tile, const uint8_t* from, size_t pitch, int rows, int columns) {
    constexpr int kChunks = kColumns / 8;
#pragma unroll
    for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
        const int index = i * kThreads + recomputed_thread(), row = index / kChunks, chunk = index % kChunks;
        cp_async_16(
            tile + WideRows<kColumns>::offset(row, chunk * 16), from + row * pitch + chunk * 16,
            row < rows && chunk * 8 < columns);
    }
}

template <bool kOutermost>
struct Panel;

/// Rows are outputs.
template <>
struct Panel<false> {
    using Rows = WideRows<kStep>;

    static __device__ __forceinline__ void copy(uint32_t tile, const Operand& operand, int first) {
        copy_tile<kTile, kStep>(
            tile, operand.from + static_cast<size_t>(first) * 2, operand.pitch, operand.outputs, operand.k - first);
    }
    static __device__ __forceinline__ LaneRows left(uint32_t tile, int warp, int lane) {
        return LaneRows(tile + warp * 32 * Rows::kPitch + Rows::lane_offset_by_rows(lane));
    }
    /// The A fragment of 16 outputs, number `output` of the warp's two, and of 16 of K, number `k` of four.
    static __device__ __forceinline__ void load(uint32_t (&a)[4], const LaneRows& rows, int output, int k) {
        ldmatrix_x4(a, rows.at(k * 32) + output * 16 * Rows::kPitch);
    }
    static __device__ __forceinline__ LaneRows right(uint32_t tile, int warp, int lane) {
        return LaneRows(tile + warp * 64 * Rows::kPitch + Rows::lane_offset_by_columns(lane));
    }
    static __device__ __forceinline__ void multiply(
        float (&sums)[2][8][4], const uint32_t (&a)[2][4], const LaneRows& rows, int k) {
        multiply_keys<Bf16, Rows>(sums, a, rows, k * 32);
    }
};

/// Rows are K.
template <>
struct Panel<true> {
    using Rows = WideRows<kTile>;

    static __device__ __forceinline__ void copy(uint32_t tile, const Operand& operand, int first) {
        copy_tile<kStep, kTile>(
            tile, operand.from + static_cast<size_t>(first) * operand.pitch, operand.pitch, operand.k - first,
            operand.outputs);
    }
    /// Matrices: K 0-7 by outputs 0-7 | 8-15, then K 8-15; transposed they are the A fragment.
    static __device__ __forceinline__ LaneRows left(uint32_t tile, int warp, int lane) {
        return LaneRows(tile + Rows::offset(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 16 + warp * 64));
    }
    static __device__ __forceinline__ void load(uint32_t (&a)[4], const LaneRows& rows, int output, int k) {
        ldmatrix_x4_trans(a, rows.at(output * 32) + k * 16 * Rows::kPitch);
    }
    static __device__ __forceinline__ LaneRows right(uint32_t tile, int warp, int lane) {
        return LaneRows(tile + warp * 128 + Rows::lane_offset_by_rows(lane));
    }
    static __device__ __forceinline__ void multiply(
        float (&sums)[2][8][4], const uint32_t (&a)[2][4], const LaneRows& rows, int k) {
        multiply_values<Bf16, Rows>(sums, a, rows, k * 16);
    }
};

/// One warp's share of the outputs: 32 of the left panel by 64 of the right one.
struct Share {
    float sums[2][8][4];

    /// Of sums[i][j][e], within the block's tile.
    static __device__ __forceinline__ int row(int i, int e) {
        const int thread = static_cast<int>(threadIdx.x);
        return thread / 64 * 32 + i * 16 + thread % 32 / 4 + e / 2 * 8;
    }
    static __device__ __forceinline__ int column(int j, int e) {
        const int thread = static_cast<int>(threadIdx.x);
        return thread / 32 % 2 * 64 + j * 8 + thread % 4 * 2 + e % 2;
    }
};

/// sums = left rightᵀ over K = 0 .. k - 1. `shared`: kSharedBytes, which nobody reads or writes any more when this returns.
/// The copy of the next step runs under the products of this one; one barrier a step.
template <bool kLeftOutermost, bool kRightOutermost>
__device__ __forceinline__ void multiply(
    Share& share, const Operand& left, const Operand& right, int k, uint32_t shared) {
    using Left = Panel<kLeftOutermost>;
    using Right = Panel<kRightOutermost>;
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const auto copy = [&](int step) {
        const uint32_t stage = shared + (step & 1) * kStageBytes;
        Left::copy(stage, left, step * kStep);
        Right::copy(stage + kPanelBytes, right, step * kStep);
        cp_async_commit();
    };
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 8; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) share.sums[i][j][e] = 0.0f;
        }
    }
    const int steps = (k + kStep - 1) / kStep;
    copy(0);
    for (int step = 0; step < steps; ++step) {
        cp_async_wait<0>();
        __syncthreads();  // the step's panels are there, and every warp is done with the other stage
        if (step + 1 < steps) copy(step + 1);
        const uint32_t stage = shared + (step & 1) * kStageBytes;
        const LaneRows rows = Left::left(stage, warp / 2, lane);
        const LaneRows columns = Right::right(stage + kPanelBytes, warp % 2, lane);
#pragma unroll
        for (int c = 0; c < kStep / 16; ++c) {
            uint32_t a[2][4];
            Left::load(a[0], rows, 0, c);
            Left::load(a[1], rows, 1, c);
            Right::multiply(share.sums, a, columns, c);
        }
    }
    __syncthreads();
}

}  // namespace product
