// SPDX-License-Identifier: MIT
// A consumer thread of the Hopper product: who it is, the barriers it uses, the scales it applies and the sums it holds.
#pragma once

#include "gemm/mn_major_a.h"
#include "gemm/scheduler.h"
#include "gemm/shape.h"
#include "ptx/ldst.h"

namespace gemm {

/// Who a consumer thread is, and which barriers it uses.
struct Consumer {
    int group, warp, lane;  // consumer warpgroup, warp in it, lane

    /// The first of a slice's rows this thread holds, relative to the tile; the other is row_step further.
    template <class Shape>
    __device__ __forceinline__ int row(int slice) const {
        return (group * Shape::kSlices + slice) * 64 + warp * 16 + lane / 4 * (Shape::kMnMajorRows ? 2 : 1);
    }
};

template <class Shape>
constexpr int row_step = Shape::kMnMajorRows ? 1 : 8;

constexpr int kGroupBarrier = 1;     // + group: the threads of one warpgroup
constexpr int kPingPongBarrier = 4;  // + group: that warpgroup's turn
constexpr int kAllBarrier = 6;       // all consumers
constexpr int kReadyBarrier = 7;     // the block: the mbarriers can be used

/// Scales of a K block with tokens as rows: two per slice of the thread, and one or two of the weights.
template <class Shape>
struct RowScales {
    float token[Shape::kSlices][2], weight[2];

    __device__ __forceinline__ void load(const float* scales, const Consumer& who) {
#pragma unroll
        for (int slice = 0; slice < Shape::kSlices; ++slice) {
            token[slice][0] = scales[who.row<Shape>(slice)];
            token[slice][1] = scales[who.row<Shape>(slice) + row_step<Shape>];
        }
        weight[0] = scales[Shape::kTokens];
        weight[1] = scales[Shape::kTokens + 1];
    }

    /// The same by address. Columns of a single run have one weight only.
    __device__ __forceinline__ void load(uint32_t scales, const Consumer& who) {
        const uint32_t mine = scales + who.row<Shape>(0) * 4;
#pragma unroll
        for (int slice = 0; slice < Shape::kSlices; ++slice) {
            token[slice][0] = load_shared(mine + slice * 256);
            token[slice][1] = load_shared(mine + slice * 256 + row_step<Shape> * 4);
        }
        weight[0] = load_shared(scales + Shape::kTokens * 4);
        if constexpr (Shape::kN > Shape::kRun) weight[1] = load_shared(scales + Shape::kTokens * 4 + 4);
    }

    /// total += scale * partial. The first `runs` runs of columns belong to the first group of weights.
    __device__ __forceinline__ void promote(
        float (&total)[Shape::kN / 2], const float (&partial)[Shape::kN / 2], int slice, int runs) const {
        constexpr int kRegisters = Shape::kRun / 2;  // of one run
#pragma unroll
        for (int run = 0; run < Shape::kN / Shape::kRun; ++run) {
            const float common = Shape::kN <= Shape::kRun || run < runs ? weight[0] : weight[1];
            const float upper = token[slice][0] * common, lower = token[slice][1] * common;
#pragma unroll
            for (int i = run * kRegisters; i < (run + 1) * kRegisters; ++i) {
                total[i] = fmaf(i % 4 < 2 ? upper : lower, partial[i], total[i]);
            }
        }
    }
};

/// Scales of a K block with tokens as columns: one for each of the thread's columns, and one of the weights.
template <class Shape>
struct ColumnScales {
    float token[Shape::kN / 4], weight;

    __device__ __forceinline__ void load(const float* scales, const Consumer& who) {
#pragma unroll
        for (int i = 0; i < Shape::kN / 8; ++i) {
            const float2 two = *reinterpret_cast<const float2*>(scales + 8 * i + who.lane % 4 * 2);
            token[2 * i] = two.x;
            token[2 * i + 1] = two.y;
        }
        weight = scales[Shape::kTokens];
    }

    __device__ __forceinline__ void promote(
        float (&total)[Shape::kN / 2], const float (&partial)[Shape::kN / 2], int, int) const {
#pragma unroll
        for (int i = 0; i < Shape::kN / 2; ++i) {
            total[i] = fmaf(token[i / 4 * 2 + i % 2] * weight, partial[i], total[i]);
        }
    }
};

template <bool kTokensAreRows, class Shape>
struct ScalesOf;
template <class Shape>
struct ScalesOf<true, Shape> {
    using Type = RowScales<Shape>;
};
template <class Shape>
struct ScalesOf<false, Shape> {
    using Type = ColumnScales<Shape>;
};

/// Sums of one tile in a thread's registers.
template <class Shape>
struct WgmmaSums {
    float total[Shape::kSlices][Shape::kN / 2];
};

/// Runs of a tile's columns that belong to its first group of weights.
template <class Shape>
__device__ __forceinline__ int runs_of(const WorkTile& work) {
    return (128 - work.column % 128) / Shape::kRun;
}

}  // namespace gemm
