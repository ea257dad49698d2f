// SPDX-License-Identifier: MIT
// Parts of a request that the blocks of a cluster have computed, added up through their shared memory (16 rows).
//
// Where all requests are equal and cut into as many chunks as a cluster has blocks, a cluster's chunks are those of one request. Each
// block leaves its part in its own shared memory, and after a barrier of the cluster reads its share of the rows of all parts: nothing
// goes through global memory, and no second kernel merges.
#pragma once

#include "ceil_div.h"
#include "online_softmax.h"
#include "ptx/cluster.h"
#include "ptx/exp2.h"
#include "ptx/mma_16bit.h"
#include "tile/decode_rows.h"
#include "tile/wgmma_coded_shape.h"
#include "tile/wide_rows.h"

/// By the 256 threads of a block of a cluster of kBlocks, after the barrier that follows the parts; another one must follow before any
/// block ends.
template <class Shape, int kBlocks>
__device__ __forceinline__ void gather_parts(
    const CodedMemory<Shape>& memory, const typename Shape::Arguments& a, int request) {
    constexpr int kPitch = Shape::kPartPitch, kLatent = CodedRow::kLatent;
    constexpr int kRows = ceil_div(Shape::kRows, kBlocks), kWarps = Shape::kConsumers / 32;   // rows of a block, at most
    constexpr int kSharers = kWarps / kRows * 32;                  // threads of a row
    constexpr int kStep = 4 * kSharers, kEach = kLatent / kStep;   // 4 columns each, so far apart
    const int thread = recomputed_thread(), column = thread % kSharers * 4, rank = cluster_rank();
    const int row = rank * Shape::kRows / kBlocks + thread / kSharers;
    if (row >= (rank + 1) * Shape::kRows / kBlocks) return;
    const uint32_t own = memory.base + Shape::kSlot + row * (kPitch * 4);
    float4 x[kBlocks][kEach];
    float lse[kBlocks];
#pragma unroll
    for (int s = 0; s < kBlocks; ++s) {
        const uint32_t from = map_shared(own, s);
        lse[s] = load_cluster(from + kLatent * 4).x;
#pragma unroll
        for (int i = 0; i < kEach; ++i) x[s][i] = load_cluster(from + (column + i * kStep) * 4);
    }
    SoftmaxRow total;
#pragma unroll
    for (int s = 0; s < kBlocks; ++s) total.maximum = fmaxf(total.maximum, lse[s]);
    const float shift = total.shift(kLog2E);
    float weight[kBlocks];
#pragma unroll
    for (int s = 0; s < kBlocks; ++s) {
        weight[s] = Exp2()(lse[s] * kLog2E - shift);
        total.sum += weight[s];
    }
    const float inverse = total.inverse();
    uint8_t* const to = a.o + ((static_cast<size_t>(request) * Shape::kRows + row) * kLatent + column) * 2;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int s = 0; s < kBlocks; ++s) {
            const float4& part = x[s][i];
            sum = make_float4(sum.x + weight[s] * part.x, sum.y + weight[s] * part.y, sum.z + weight[s] * part.z,
                              sum.w + weight[s] * part.w);
        }
        *reinterpret_cast<uint2*>(to + i * (kStep * 2)) =
            make_uint2(Bf16::pack(sum.x * inverse, sum.y * inverse), Bf16::pack(sum.z * inverse, sum.w * inverse));
    }
    if (column == 0) {
        a.lse[lse_index<false>(a, request, row)] = total.lse(kLog2E);
    }
}
