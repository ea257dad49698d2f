// SPDX-License-Identifier: MIT
// Parts of a request that the blocks of a cluster have computed, added up through their shared memory (16 rows).
//
// Where all requests are equal and cut into as many chunks as a cluster has blocks, a cluster's chunks are those of one request. Each
// block leaves its part in its own shared memory, and after a barrier of the cluster reads its share of the rows of all parts: nothing
// goes through global memory, and no second kernel merges.
#pragma once

#include "online_softmax.h"
#include "ptx/cluster.h"
#include "ptx/exp2.h"
#include "ptx/mma_16bit.h"
#include "tile/wgmma_coded_shape.h"
#include "tile/wide_rows.h"

/// By the 256 threads of a block of a cluster of kBlocks, after the barrier that follows the parts; another one must follow before any
/// block ends.
template <class Shape, int kBlocks>
__device__ __forceinline__ void gather_parts(
    const CodedMemory<Shape>& memory, const typename Shape::Arguments& a, int request) {
    constexpr int kPitch = Shape::kPartPitch, kLatent = CodedRow::kLatent;
    constexpr int kRows = Shape::kRows / kBlocks, kEach = kRows * (kLatent / 4) / Shape::kConsumers;   // 4 columns each
    static_assert(kEach * Shape::kConsumers * 4 == kRows * kLatent, "two rows at a time");
    const int thread = recomputed_thread(), column = thread % (kLatent / 4) * 4;
    const int first_row = cluster_rank() * kRows + thread / (kLatent / 4);
    const uint32_t own = memory.base + Shape::kSlot + first_row * (kPitch * 4);
    float4 x[kBlocks][kEach];
    float lse[kBlocks][kEach];
#pragma unroll
    for (int s = 0; s < kBlocks; ++s) {
        const uint32_t from = map_shared(own, s);
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            x[s][i] = load_cluster(from + i * (2 * kPitch * 4) + column * 4);
            lse[s][i] = load_cluster(from + i * (2 * kPitch * 4) + kLatent * 4).x;
        }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        SoftmaxRow total;
#pragma unroll
        for (int s = 0; s < kBlocks; ++s) total.maximum = fmaxf(total.maximum, lse[s][i]);
        const float shift = total.shift(kLog2E);
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int s = 0; s < kBlocks; ++s) {
            const float weight = Exp2()(lse[s][i] * kLog2E - shift);
            total.sum += weight;
            sum = make_float4(sum.x + weight * x[s][i].x, sum.y + weight * x[s][i].y, sum.z + weight * x[s][i].z,
                              sum.w + weight * x[s][i].w);
        }
        const float inverse = total.inverse();
        const int row = first_row + 2 * i;
        *reinterpret_cast<uint2*>(a.o + ((static_cast<size_t>(request) * Shape::kRows + row) * kLatent + column) * 2) =
            make_uint2(Bf16::pack(sum.x * inverse, sum.y * inverse), Bf16::pack(sum.z * inverse, sum.w * inverse));
        if (column == 0) {
            const int query = row / a.heads, head = row - query * a.heads;
            a.lse[(static_cast<size_t>(request) * a.heads + head) * a.seqlen_q + query] = total.lse(kLog2E);
        }
    }
}
