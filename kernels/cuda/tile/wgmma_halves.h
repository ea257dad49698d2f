// SPDX-License-Identifier: MIT
// How two blocks of a cluster that each multiplied half of K finish a tile: each keeps half of the columns, sends the sums of the
// others to the other block, straight from registers into its memory, and stores what it kept.
//
// What a thread sends lands where the thread of the same number in the other block reads it, and that one holds the same rows:
// 16 bytes per thread side by side, so there is no layout to keep and no bank conflict. The memory is that of tiles on their
// way out: a warpgroup's part of it holds half of its sums in fp32 just as well as all of them in bf16.
#pragma once

#include "ptx/cluster.h"
#include "tile/wgmma_consume.h"
#include "tile/wgmma_shape.h"
#include "tile/wgmma_store.h"
#include "tile/wgmma_work.h"

/// Half `kKept` of the columns by this block, after the exchange. All consumer threads.
template <class Shape, int kKept>
__device__ __forceinline__ void finish_half(
    const WgmmaMemory<Shape>& memory, const Consumer& who, WgmmaSums<Shape>& sums, const TensorMap& output,
    const WgmmaProblem& p, const WgmmaWork& work) {
    constexpr int kQuads = Shape::kN / 16;   // of a slice's half, per thread
    const int mine = who.group * (Shape::kSlices * Shape::kSliceBytes) + (who.warp * 32 + who.lane) * 16;
    const uint32_t to = map_shared(memory.out(), kKept ^ 1) + mine;
#pragma unroll
    for (int slice = 0; slice < Shape::kSlices; ++slice) {
#pragma unroll
        for (int quad = 0; quad < kQuads; ++quad) {
            const float* const sum = sums.total[slice] + ((kKept ^ 1) * kQuads + quad) * 4;
            store_cluster(to + (slice * kQuads + quad) * 2048, {sum[0], sum[1], sum[2], sum[3]});
        }
    }
    cluster_barrier();   // all threads of both blocks: all sums are where they are added
    const uint8_t* const from = memory.start + Shape::kRingBytes + mine;
#pragma unroll
    for (int slice = 0; slice < Shape::kSlices; ++slice) {
#pragma unroll
        for (int quad = 0; quad < kQuads; ++quad) {
            const float4 sent = *reinterpret_cast<const float4*>(from + (slice * kQuads + quad) * 2048);
            float* const sum = sums.total[slice] + (kKept * kQuads + quad) * 4;
            sum[0] += sent.x;   // of two numbers: in whichever order
            sum[1] += sent.y;
            sum[2] += sent.z;
            sum[3] += sent.w;
        }
    }
    if (p.boxes) store_boxes<Shape, kKept, 2>(memory, who, sums, output, work);
    else store_elements<Shape, kKept, 2>(who, sums, p, work);
}

template <class Shape>
__device__ __forceinline__ void finish_halves(
    const WgmmaMemory<Shape>& memory, const Consumer& who, WgmmaSums<Shape>& sums, const TensorMap& output,
    const WgmmaProblem& p, const WgmmaWork& work, int rank) {
    if (rank == 0) finish_half<Shape, 0>(memory, who, sums, output, p, work);
    else finish_half<Shape, 1>(memory, who, sums, output, p, work);
}
