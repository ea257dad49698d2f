// SPDX-License-Identifier: MIT
// The merge of MLA decode (tile/latent_merge.h) where a row has many parts: a block has some columns of a row, and its lanes share
// the parts.
//
// Behind the wait for the parts lies one trip to L2, whatever the number of parts up to kTurn: every lane asks for all of its parts'
// columns at once, and for LSEs beside them. Each warp works out the weights of all parts by itself, so that no barrier stands before the
// sums of the warps are added up. All addresses of the first row are there before the wait, since what an instruction takes that runs once
// is 5 to 10 cycles.
#pragma once

#include <cstdint>

#include "online_softmax.h"
#include "ptx/compute_now.h"
#include "ptx/exp2.h"
#include "ptx/grid_dependency.h"
#include "ptx/load_now.h"
#include "ptx/mma_16bit.h"
#include "tile/decode_rows.h"
#include "tile/decode_schedule.h"
#include "tile/wgmma_latent_shape.h"
#include "tile/wide_rows.h"

struct LatentMerge {
    PageSchedule schedule;
    SplitWorkspace parts;
    uint8_t* o;   // as in LatentArguments
    float* lse;
    int queries, heads;
    int blocks;   // of a request
    bool paired = false;   // nothing is left to merge where requests are as expected
};

__device__ __forceinline__ void add_weighted(float4& sum, float weight, const float4& x) {
    sum = make_float4(sum.x + weight * x.x, sum.y + weight * x.y, sum.z + weight * x.z, sum.w + weight * x.w);
}

__device__ __forceinline__ float warp_maximum(float x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/// A block for each 4 kLanes columns of a row: so many lanes have a part, others the next one, each kFirst parts at once.
template <int kLanes, int kWarps, int kFirst>
struct ManyParts {
    static constexpr int kSegment = 4 * kLanes, kSegments = 512 / kSegment;
    static constexpr int kSharers = kWarps * 32 / kLanes;     // of the parts
    static constexpr int kTurn = kFirst * kSharers;           // parts that are asked for at once
    static constexpr int kSlots = (kTurn + 31) / 32;          // of them for which a lane has the weight
    static_assert(32 % kSharers == 0, "a lane's parts have their weights in one lane each");

    const LatentMerge& a;
    const PartList& list;
    int request;

    const float* columns;      // this thread's, of the workspace's first row
    unsigned start;            // row in the part that starts the request
    unsigned rest, rest_lse;   // in this lane's first one of the others, and in part `lane`
    unsigned pitch;            // rows between parts

    __device__ __forceinline__ void place(int item) {
        const int thread = static_cast<int>(threadIdx.x), row = item / kSegments;
        columns = a.parts.o + (item % kSegments * kSegment + thread % kLanes * 4);
        start = static_cast<unsigned>(list.head) + row;
        rest_lse = static_cast<unsigned>(list.base) + row;
        pitch = static_cast<unsigned>(list.pitch);
        rest = rest_lse + thread / kLanes * pitch;
        rest_lse += thread % 32 * pitch;
        compute_now(columns);
        compute_now(start);
        compute_now(rest);
        compute_now(rest_lse);
    }

    /// `share` of `sharing` blocks.
    __device__ __forceinline__ void merge(int share, int sharing) {
        __shared__ float4 shares[kWarps][kLanes];
        const int thread = recomputed_thread(), lane = thread % 32, sharer = thread / kLanes;
        const int items = a.queries * a.heads * kSegments;
        if (share >= items) return;
        place(share);
        grid_dependency_wait();
#pragma unroll 1
        for (int item = share;;) {
            SoftmaxRow total;   // the sum is this lane's share of it
            float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 1
            for (int s0 = 0; s0 < list.count; s0 += kTurn) {
                float weight[kSlots];
                float4 x[kFirst];
#pragma unroll
                for (int k = 0; k < kSlots; ++k) {
                    const int s = s0 + 32 * k + lane;
                    const float* const from = a.parts.lse + (k == 0 && s == 0 ? start : rest_lse + k * 32 * pitch);
                    weight[k] = -INFINITY;
                    if (32 * k + lane < kTurn && s < list.count) weight[k] = load_now(from);
                }
#pragma unroll
                for (int i = 0; i < kFirst; ++i) {
                    const int s = s0 + i * kSharers + sharer;
                    const float* const from = columns + static_cast<size_t>(i == 0 && s == 0 ? start : rest + i * kSharers * pitch) * 512;
                    if (s < list.count) x[i] = load_now(reinterpret_cast<const float4*>(from));
                }
                float largest = weight[0];
#pragma unroll
                for (int k = 1; k < kSlots; ++k) largest = fmaxf(largest, weight[k]);
                const float correction = total.raise(warp_maximum(largest), kLog2E, Exp2());
                sum = make_float4(sum.x * correction, sum.y * correction, sum.z * correction, sum.w * correction);
                const float shift = total.shift(kLog2E);
#pragma unroll
                for (int k = 0; k < kSlots; ++k) {
                    weight[k] = Exp2()(weight[k] * kLog2E - shift);
                    total.sum += weight[k];
                }
                // Where a part saw no key, its output was never written, and may be anything.
#pragma unroll
                for (int i = 0; i < kFirst; ++i) {
                    const float factor = __shfl_sync(0xffffffffu, weight[i * kSharers / 32], i * kSharers % 32 + sharer);
                    if (factor != 0.0f) add_weighted(sum, factor, x[i]);   // 0 behind the last part
                }
                rest += kTurn * pitch;
                rest_lse += kTurn * pitch;
            }
            // Between the sharers of a warp, then between warps.
#pragma unroll
            for (int lanes = kLanes; lanes < 32; lanes *= 2) {
                sum.x += __shfl_xor_sync(0xffffffffu, sum.x, lanes);
                sum.y += __shfl_xor_sync(0xffffffffu, sum.y, lanes);
                sum.z += __shfl_xor_sync(0xffffffffu, sum.z, lanes);
                sum.w += __shfl_xor_sync(0xffffffffu, sum.w, lanes);
            }
            const int after = recomputed_thread();
            if (after % 32 < kLanes) shares[after / 32][after % 32] = sum;
            total.sum = warp_sum(total.sum);
            __syncthreads();
            const int row = item / kSegments, segment = item % kSegments;
            if (after < kLanes) {
#pragma unroll
                for (int other = 1; other < kWarps; ++other) add_weighted(sum, 1.0f, shares[other][after]);
                const float inverse = total.inverse();
                const size_t at = (static_cast<size_t>(request) * (a.queries * a.heads) + row) * 512 + segment * kSegment + after * 4;
                *reinterpret_cast<uint2*>(a.o + at * 2) =
                    make_uint2(Bf16::pack(sum.x * inverse, sum.y * inverse), Bf16::pack(sum.z * inverse, sum.w * inverse));
            } else if (after == 32 && segment == 0) {   // beside them, who store the columns
                a.lse[lse_index(RequestRows{a.queries, a.heads}, request, row)] = total.lse(kLog2E);
            }
            __syncthreads();   // the warps' sums are read: there may be another row, or another request
            item += sharing;
            if (item >= items) return;
            place(item);
        }
    }
};
