// SPDX-License-Identifier: MIT
// MLA decode of 16 rows over e4m3 codes: parts of a request merged by the last block that has one.
#pragma once

#include <cuda_runtime.h>

#include "common/wide_rows.h"
#include "fp8.h"
#include "mla/call.h"
#include "mla/fp8_small_m_shape.h"
#include "mla/workspace.h"
#include "online_softmax.h"
#include "ptx/atomic.h"
#include "ptx/math.h"
#include "ptx/mma.h"
#include "ptx/thread.h"

namespace mla {

// In batches of up to LAST_MERGES requests of few parts no second kernel merges them. A block that has stored its parts counts each at
// its request's number; the one that finds all others there adds them up. Nobody waits. Parts are added in their order whoever does it:
// results do not depend on who is last.
//
// Only the first piece of a chunk may continue a request, and only the last one start a request that is cut: a block has at most two to
// count, and does so behind all its pieces. Chunks are equally long, so other parts are not ready before. In the loop
// of pieces ptxas would work out the products' addresses thread by thread: 1317 to 1466 instructions a page instead of 1126.
//
// The number of the first chunk with pages of a request serves as the request's, since no other request that is cut starts there. Numbers
// lie in memory of the module, zero before and after each launch (mla/workspace.h).

/// Where part `index` of a request lies in the workspace.
template <class Arguments>
__device__ __forceinline__ int part_of(const Arguments& a, const CutRequest& cut, int index) {
    return index == 0 ? a.schedule.groups + cut.request : cut.first + index;
}

/// Add up the parts of a request and store; by all 256 threads, sixteen to a row.
template <class Shape>
__device__ __forceinline__ void merge_parts(const typename Shape::Arguments& a, const CutRequest& cut, int first_row) {
    constexpr int kLatent = Fp8Row::kLatent, kEach = kLatent / 64, kAtOnce = 2;  // four columns each, 64 apart; parts
    static_assert(Shape::kConsumers == 16 * Shape::kRows, "sixteen threads to a row");
    const int thread = recomputed_thread(), row = thread / 16, column = thread % 16 * 4;
    SoftmaxRow total;
    float4 sum[kEach] = {};
#pragma unroll 1
    for (int s0 = 0; s0 < cut.count; s0 += kAtOnce) {
        float lses[kAtOnce];
        float4 x[kAtOnce][kEach];
#pragma unroll
        for (int s = 0; s < kAtOnce; ++s) {
            if (s0 + s >= cut.count) break;
            const size_t at = first_row_of(a, part_of(a, cut, s0 + s)) + first_row + row;
            lses[s] = __ldcg(a.parts.lse + at);
#pragma unroll
            for (int i = 0; i < kEach; ++i) x[s][i] = load_from_l2(a.parts.o + at * kLatent + column + i * 64);
        }
#pragma unroll
        for (int s = 0; s < kAtOnce; ++s) {
            if (s0 + s >= cut.count) break;
            const float before = total.raise(lses[s], kLog2E, Exp2());
            const float weight = Exp2()(lses[s] * kLog2E - total.shift(kLog2E));
            total.sum += weight;
#pragma unroll
            for (int i = 0; i < kEach; ++i) {
                sum[i] = make_float4(
                    sum[i].x * before + x[s][i].x * weight, sum[i].y * before + x[s][i].y * weight,
                    sum[i].z * before + x[s][i].z * weight, sum[i].w * before + x[s][i].w * weight);
            }
        }
    }
    const float inverse = total.inverse();
    uint8_t* const to = a.o + ((first_row_of(a, cut.request) + first_row + row) * kLatent + column) * 2;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        *reinterpret_cast<uint2*>(to + i * 128) = make_uint2(
            Bf16::pack(sum[i].x * inverse, sum[i].y * inverse), Bf16::pack(sum[i].z * inverse, sum[i].w * inverse));
    }
    if (column == 0) a.lse[lse_index(a, cut.request, first_row + row)] = total.lse(kLog2E);
}

/// By all 256 threads, which `meet`, when they have stored the block's parts: count those, and merge what is complete by that.
template <class Shape, class Meet>
__device__ __forceinline__ void merge_if_last(
    const Fp8SmallMMemory<Shape>& memory, const typename Shape::Arguments& a, int row_tile, Meet meet) {
    meet();
    if (recomputed_thread() == 0) {
        fence_between();
        unsigned* numbers[2];
        unsigned stored[2] = {};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const CutRequest& cut = memory.cut(i != 0);
            numbers[i] = part_counts[a.count_set] + cut.first * a.row_tiles + row_tile;
            if (cut.count != 0) stored[i] = fetch_add(numbers[i], 1) + 1;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            CutRequest& cut = memory.cut(i != 0);
            if (cut.count == 0) continue;
            if (static_cast<int>(stored[i]) == cut.count) {
                *numbers[i] = 0;
            } else {
                cut.count = 0;  // not for this block
            }
        }
        fence_between();
    }
    meet();
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
        const CutRequest cut = memory.cut(i != 0);
        if (cut.count != 0) merge_parts<Shape>(a, cut, row_tile * Shape::kRows);
    }
}

}  // namespace mla
