// SPDX-License-Identifier: MIT
// The second kernel of MLA decode on wgmma: merges the parts of requests that a chunk's edge cut, in a fixed order.
//
// A block has rows of one request and works out once where its parts lie, while the parts are still computed. Where rows are
// many and parts few, a warp merges 128 columns of a row. Else all warps of a block do: they weigh the parts together, and each
// adds up an eighth of them, of which it asks for the first before it knows their weights.
#pragma once

#include <algorithm>
#include <cstdint>

#include "online_softmax.h"
#include "ptx/exp2.h"
#include "ptx/grid_dependency.h"
#include "ptx/mma_16bit.h"
#include "tile/decode_schedule.h"
#include "tile/launch_cluster.h"
#include "tile/wgmma_latent_shape.h"

struct LatentMerge {
    PageSchedule schedule;
    SplitWorkspace parts;
    uint8_t* o;   // as in LatentArguments
    float* lse;
    int queries, heads;
    int blocks;   // of a request
};

constexpr int kMergeWarps = 8, kMergeSegment = 128, kMergeSegments = 512 / kMergeSegment;

__device__ __forceinline__ void add_weighted(float4& sum, float weight, const float4& x) {
    sum = make_float4(sum.x + weight * x.x, sum.y + weight * x.y, sum.z + weight * x.z, sum.w + weight * x.w);
}

/// Four columns of a row, and, from the first of them, its LSE.
__device__ __forceinline__ void store_merged(
    const LatentMerge& a, int request, int row, int column, const float4& sum, const SoftmaxRow& total) {
    const size_t output_row = static_cast<size_t>(request) * (a.queries * a.heads) + row;
    *reinterpret_cast<uint2*>(a.o + (output_row * 512 + column) * 2) =
        make_uint2(Bf16::pack(sum.x, sum.y), Bf16::pack(sum.z, sum.w));
    if (column != 0) return;
    const size_t index = (static_cast<size_t>(request) * a.heads + row % a.heads) * a.queries + row / a.heads;
    a.lse[index] = total.lse(kLog2E);
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

/// Few parts: a warp for each 128 columns of a row. `list` has the parts of row 0.
__device__ __forceinline__ void merge_few(const LatentMerge& a, int request, int share, const PartList& list) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int items = a.queries * a.heads * kMergeSegments;
    for (int item = share * kMergeWarps + warp; item < items; item += a.blocks * kMergeWarps) {
        const int row = item / kMergeSegments, column = item % kMergeSegments * kMergeSegment + lane * 4;
        float largest = -INFINITY;
        for (int s = lane; s < list.count; s += 32) largest = fmaxf(largest, a.parts.lse[list.row(s) + row]);
        SoftmaxRow total{warp_maximum(largest), 0.0f};
        const float shift = total.shift(kLog2E);
        for (int s = lane; s < list.count; s += 32) {
            total.sum += Exp2()(a.parts.lse[list.row(s) + row] * kLog2E - shift);
        }
        total.sum = warp_sum(total.sum);
        const float inverse = total.inverse();
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 2
        for (int s = 0; s < list.count; ++s) {
            const long long at = list.row(s) + row;
            const float weight = Exp2()(a.parts.lse[at] * kLog2E - shift) * inverse;
            // If this part saw no key, its output was never written.
            if (weight != 0.0f) {
                add_weighted(sum, weight, *reinterpret_cast<const float4*>(a.parts.o + at * 512 + column));
            }
        }
        store_merged(a, request, row, column, sum, total);
    }
}

/// Many parts: a block for each 128 columns of a row.
__device__ __forceinline__ void merge_many(const LatentMerge& a, int request, int share, const PartList& list) {
    constexpr int kMost = 512, kFirst = 5;  // parts of a row; those a warp asks for at once
    __shared__ float weights[kMost];
    __shared__ float reduced[2][kMergeWarps];
    __shared__ float4 shares[kMergeWarps][32];
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
    const int items = a.queries * a.heads * kMergeSegments;
    for (int item = share; item < items; item += a.blocks) {
        const int row = item / kMergeSegments, column = item % kMergeSegments * kMergeSegment + lane * 4;
        const auto load = [&](int s) {
            return *reinterpret_cast<const float4*>(a.parts.o + (list.row(s) + row) * 512 + column);
        };
        float4 first[kFirst];
#pragma unroll
        for (int i = 0; i < kFirst; ++i) {
            const int s = warp + i * kMergeWarps;
            first[i] = s < list.count ? load(s) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        float largest = -INFINITY;
        for (int s = thread; s < list.count; s += kMergeWarps * 32) {
            weights[s] = a.parts.lse[list.row(s) + row];
            largest = fmaxf(largest, weights[s]);
        }
        largest = warp_maximum(largest);
        if (lane == 0) reduced[0][warp] = largest;
        __syncthreads();
        SoftmaxRow total{-INFINITY, 0.0f};
#pragma unroll
        for (int w = 0; w < kMergeWarps; ++w) total.maximum = fmaxf(total.maximum, reduced[0][w]);
        const float shift = total.shift(kLog2E);
        float sum_of_weights = 0.0f;
        for (int s = thread; s < list.count; s += kMergeWarps * 32) {
            weights[s] = Exp2()(weights[s] * kLog2E - shift);
            sum_of_weights += weights[s];
        }
        sum_of_weights = warp_sum(sum_of_weights);
        if (lane == 0) reduced[1][warp] = sum_of_weights;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < kMergeWarps; ++w) total.sum += reduced[1][w];
        const float inverse = total.inverse();

        // Where a part saw no key, its output was never written, and may be anything.
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < kFirst; ++i) {
            const int s = warp + i * kMergeWarps;
            const float weight = s < list.count ? weights[s] * inverse : 0.0f;
            if (weight != 0.0f) add_weighted(sum, weight, first[i]);
        }
#pragma unroll 8
        for (int s = warp + kFirst * kMergeWarps; s < list.count; s += kMergeWarps) {
            const float weight = weights[s] * inverse;
            if (weight != 0.0f) add_weighted(sum, weight, load(s));
        }
        shares[warp][lane] = sum;
        __syncthreads();
        if (warp == 0) {
            for (int other = 1; other < kMergeWarps; ++other) add_weighted(sum, 1.0f, shares[other][lane]);
            store_merged(a, request, row, column, sum, total);
        }
        __syncthreads();
    }
}

template <bool kMany>
__global__ void __launch_bounds__(kMergeWarps * 32, 4) merge_latent(const __grid_constant__ LatentMerge a) {
    grid_dependency_release();
    const int request = static_cast<int>(blockIdx.x) / a.blocks, share = static_cast<int>(blockIdx.x) % a.blocks;
    const int rows = a.queries * a.heads;
    // The lengths were final before the parts' kernel let this one start.
    const PartList list =
        DecodeParts<PageSchedule>{a.schedule, rows}.of(static_cast<long long>(request) * rows, threadIdx.x % 32);
    grid_dependency_wait();
    if (list.count == 0) return;
    if constexpr (kMany) merge_many(a, request, share, list);
    else merge_few(a, request, share, list);
}

/// Launch the merge of a batch cut into a.schedule.groups chunks. Returns 0 or the runtime's error.
inline int launch_latent_merge(LatentMerge a, int multiprocessors, bool early, void* queue) {
    const int batch = a.schedule.batch, items = a.queries * a.heads * kMergeSegments;
    const int parts = a.schedule.groups / batch + 1;  // of a row, about
    const int most = std::max(1, 6 * multiprocessors / batch);  // blocks that run at a time
    const bool many = parts >= 4 && a.schedule.groups < 500 && static_cast<long long>(batch) * items < 4096;
    a.blocks = std::min(most, many ? items : ceil_div(items, kMergeWarps));
    return launch_cluster(
        many ? merge_latent<true> : merge_latent<false>, batch * a.blocks, kMergeWarps * 32, 1, 0, early, queue, a);
}
