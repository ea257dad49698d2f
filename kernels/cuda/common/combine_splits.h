// SPDX-License-Identifier: MIT
// The second kernel of a split-KV attention: merges parts (kernels/common/split_kv.h) into O and LSE.
//
// One warp per (row, segment of 128 columns; all 64 for head_dim 64); where rows are few and parts many, up to eight warps
// share the parts of one segment and add up through shared memory. The order of additions depends on sizes only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "launch.h"
#include "online_softmax.h"
#include "ptx/math.h"
#include "ptx/mma.h"
#include "split_kv.h"

/// Where the parts of one output row lie, as rows of the workspace: `head`, then `base` + s * `pitch` for s = 1 ... A count of
/// 0 says that the row is written already.
struct SplitList {
    int count;
    long long head, base, pitch;

    __device__ __forceinline__ long long row(int s) const { return s == 0 ? head : base + s * pitch; }
};

/// Every row has `splits` parts, each part is all rows.
struct UniformSplits {
    int splits;
    long long rows;

    __device__ __forceinline__ SplitList of(long long row, int) const { return {splits, row, row, rows}; }
};

template <typename Parts>
struct CombineArguments {
    Parts parts;
    SplitWorkspace workspace;
    void* o;     // [rows, columns], rows = (batch, query, head)
    float* lse;  // [batch, heads, queries]
    long long rows;
    int queries, heads;
    int warps_per_segment;  // 1, 2, 4 or 8
};

constexpr int kCombineWarps = 8;

/// What one block of the second kernel does. `parts_ready` returns when the parts may be read; where they lie is worked
/// out before.
template <typename Element, int kColumns, typename Parts, typename Ready>
__device__ __forceinline__ void combine_block(const CombineArguments<Parts>& a, Ready parts_ready) {
    constexpr int kSegment = kColumns < 128 ? kColumns : 128;
    constexpr int kSegments = kColumns / kSegment;
    constexpr int kPerLane = kSegment / 32;  // 2 or 4 consecutive columns
    struct alignas(4 * kPerLane) Vector {
        float x[kPerLane];
    };
    __shared__ Vector shares[kCombineWarps][32];

    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int share = warp % a.warps_per_segment;
    const long long item =
        static_cast<long long>(blockIdx.x) * (kCombineWarps / a.warps_per_segment) + warp / a.warps_per_segment;
    const bool active = item < a.rows * kSegments;
    const long long row = active ? item / kSegments : 0;
    const int column = static_cast<int>(item % kSegments) * kSegment + lane * kPerLane;
    const SplitList parts = a.parts.of(row, lane);
    parts_ready();

    // log2 of the total: every warp reads all parts' LSE of its row.
    float largest = -INFINITY;
    for (int s = lane; s < parts.count; s += 32) largest = fmaxf(largest, a.workspace.lse[parts.row(s)]);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    SoftmaxRow total{largest, 0.0f};
    const float shift = total.shift(kLog2E);
    for (int s = lane; s < parts.count; s += 32) total.sum += Exp2()(a.workspace.lse[parts.row(s)] * kLog2E - shift);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) total.sum += __shfl_xor_sync(0xffffffffu, total.sum, step);
    const float inverse = total.inverse();

    // 32 parts of this warp's share at a time: each lane weighs one, so that the loads of outputs wait for nothing.
    Vector sum{};
    const int mine = ceil_div(parts.count - share, a.warps_per_segment);
    for (int begin = 0; begin < mine; begin += 32) {
        const int own = share + (begin + lane) * a.warps_per_segment;
        const float own_lse = own < parts.count ? a.workspace.lse[parts.row(own)] : -INFINITY;
        const float own_weight = Exp2()(own_lse * kLog2E - shift) * inverse;
        const int count = min(32, mine - begin);
#pragma unroll 8
        for (int i = 0; i < count; ++i) {
            const float weight = __shfl_sync(0xffffffffu, own_weight, i);
            Vector part{};
            if (weight != 0.0f) {  // else this part adds nothing: if it saw no key, its output was never written
                const long long at = parts.row(share + (begin + i) * a.warps_per_segment);
                part = *reinterpret_cast<const Vector*>(a.workspace.o + at * kColumns + column);
            }
#pragma unroll
            for (int c = 0; c < kPerLane; ++c) sum.x[c] += weight * part.x[c];
        }
    }
    if (a.warps_per_segment > 1) {
        shares[warp][lane] = sum;
        __syncthreads();
        if (share != 0) return;
        for (int other = 1; other < a.warps_per_segment; ++other) {
#pragma unroll
            for (int i = 0; i < kPerLane; ++i) sum.x[i] += shares[warp + other][lane].x[i];
        }
    }
    if (!active || parts.count == 0) return;
    uint32_t* out = static_cast<uint32_t*>(a.o) + (row * kColumns + column) / 2;
#pragma unroll
    for (int i = 0; i < kPerLane / 2; ++i) out[i] = Element::pack(sum.x[2 * i], sum.x[2 * i + 1]);
    if (column == 0) {
        const long long head = row % a.heads, query = row / a.heads % a.queries, batch = row / a.heads / a.queries;
        a.lse[(batch * a.heads + head) * a.queries + query] = total.lse(kLog2E);
    }
}

template <typename Element, int kColumns, typename Parts>
__global__ void __launch_bounds__(kCombineWarps * 32)
    combine_splits(const __grid_constant__ CombineArguments<Parts> a) {
    combine_block<Element, kColumns>(a, [] {});
}

/// Choose warps_per_segment for rows of about `parts_per_row` parts; returns how many blocks that takes.
template <int kColumns, typename Parts>
int share_segments(CombineArguments<Parts>& a, int parts_per_row) {
    constexpr int kSegments = kColumns < 128 ? 1 : kColumns / 128;
    const long long items = a.rows * kSegments;
    // Share the parts of a segment between warps only where the segments alone would leave the device idle.
    a.warps_per_segment = 1;
    while (a.warps_per_segment < kCombineWarps && 2 * a.warps_per_segment <= parts_per_row &&
           items * a.warps_per_segment < 4096) {
        a.warps_per_segment *= 2;
    }
    return static_cast<int>(ceil_div<long long>(items * a.warps_per_segment, kCombineWarps));
}

/// Launch the merge; a row has about `parts_per_row` parts. Returns the vendor's status.
template <typename Element, int kColumns, typename Parts>
int launch_combine(CombineArguments<Parts> a, int parts_per_row, void* queue) {
    const auto kernel = combine_splits<Element, kColumns, Parts>;
    const int blocks = share_segments<kColumns>(a, parts_per_row);
    LAUNCH(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kCombineWarps * 32), 0, queue)(a);
    return LAUNCH_STATUS();
}
