// SPDX-License-Identifier: MIT
// How two blocks that each multiplied half of K finish a tile: each keeps the sums of one half of its consumer warpgroups and
// sends the others' to the other block, straight from registers into its memory.
//
// What a thread sends lands where the thread of the same number in the other block reads it, and that one holds the same
// elements: 16 bytes per thread side by side, so there is no layout to keep and no bank conflict. The warpgroups that kept
// then store whole rows by TMA.
#pragma once

#include "ptx/cluster.h"
#include "tile/wgmma_consume.h"
#include "tile/wgmma_shape.h"
#include "tile/wgmma_work.h"

/// Where this thread's sums i .. i + 3 of a slice lie in the memory that receives, in bytes from its start.
template <class Shape>
__device__ __forceinline__ int halves_offset(const Consumer& who, int slice, int i) {
    const int group = who.group % (Shape::kConsumers / 2);
    return (((group * Shape::kSlices + slice) * (Shape::kN / 8) + i / 4) * 128 + who.warp * 32 + who.lane) * 16;
}

/// Whether this warpgroup's rows are stored by this block.
template <class Shape>
__device__ __forceinline__ bool halves_kept(const Consumer& who, int rank) {
    return who.group / (Shape::kConsumers / 2) == rank;
}

/// To the other block, unless they are kept. A cluster barrier follows.
template <class Shape>
__device__ __forceinline__ void send_half(
    const WgmmaMemory<Shape>& memory, const Consumer& who, const WgmmaSums<Shape>& sums, int rank) {
    if (halves_kept<Shape>(who, rank)) return;
    const uint32_t to = map_shared(memory.out(), rank ^ 1);
#pragma unroll
    for (int slice = 0; slice < Shape::kSlices; ++slice) {
#pragma unroll
        for (int i = 0; i < Shape::kN / 2; i += 4) {
            const float* const sum = sums.total[slice] + i;
            store_cluster(to + halves_offset<Shape>(who, slice, i), {sum[0], sum[1], sum[2], sum[3]});
        }
    }
}

/// Add what the other block sent. Of two numbers, so that the order does not matter.
template <class Shape>
__device__ __forceinline__ void add_half(const WgmmaMemory<Shape>& memory, const Consumer& who, WgmmaSums<Shape>& sums) {
    const uint8_t* const from = memory.start + Shape::kRingBytes;
#pragma unroll
    for (int slice = 0; slice < Shape::kSlices; ++slice) {
#pragma unroll
        for (int i = 0; i < Shape::kN / 2; i += 4) {
            const float4 sent = *reinterpret_cast<const float4*>(from + halves_offset<Shape>(who, slice, i));
            sums.total[slice][i] += sent.x;
            sums.total[slice][i + 1] += sent.y;
            sums.total[slice][i + 2] += sent.z;
            sums.total[slice][i + 3] += sent.w;
        }
    }
}
