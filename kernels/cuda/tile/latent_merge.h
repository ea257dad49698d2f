// SPDX-License-Identifier: MIT
// The second kernel of MLA decode on wgmma: merges the parts of requests that a chunk's edge cut, in a fixed order.
//
// A block has rows of one request and works out once where its parts lie, while the parts are still computed. Where parts are
// few, a warp merges 128 or 256 columns of a row; where they are many, a block merges 32, 64 or 128 columns, and its lanes share
// the parts. Both ask for the parts' outputs before they know their weights, so that one delay of memory covers both. The launch
// chooses by how many parts a request has on average; where that is few, a long request among short ones goes to all blocks.
//
// A block without anything to merge ends at once; the first one always waits for the parts' kernel, since the launch behind
// this one counts on both being complete.
#pragma once

#include <algorithm>
#include <cstdint>

#include "online_softmax.h"
#include "ptx/exp2.h"
#include "ptx/grid_dependency.h"
#include "ptx/mma_16bit.h"
#include "tile/decode_rows.h"
#include "tile/decode_schedule.h"
#include "tile/latent_merge_many.h"
#include "tile/launch_cluster.h"
#include "tile/wgmma_latent_shape.h"

// Tunables of the kernel file.
#ifndef LONG_LANES
#define LONG_LANES 8   // lanes with a part of a long request among short ones: 16, 8 or 4; 0: as any many parts
#endif
#ifndef LONG_FIRST
#define LONG_FIRST 6   // and how many parts each asks for at once
#endif
#ifndef SPARE
#define SPARE 1        // whether a long request goes to blocks without rows of their own first
#endif
#ifndef MANY
#define MANY 2         // 1: requests of many parts, of up to 128 rows in all, are merged by ManyParts; 2: of any number
#endif
#ifndef LONG_LIST
#define LONG_LIST 16   // parts of one request that are many beside requests of few
#endif
#ifndef FEW_FIRST
#define FEW_FIRST 6    // 512 bytes that a warp asks for at once
#endif

constexpr int kLongList = 8;             // parts of a row, on average, that are many
constexpr int kLongestFew = LONG_LIST;   // parts of one row that are many beside rows of few
static_assert(kLongestFew <= 31, "a warp's lanes have a part each");

/// Four columns of a row, and, from the first of them, its LSE.
__device__ __forceinline__ void store_merged(
    const LatentMerge& a, int request, int row, int column, const float4& sum, const SoftmaxRow& total) {
    const size_t output_row = static_cast<size_t>(request) * (a.queries * a.heads) + row;
    *reinterpret_cast<uint2*>(a.o + (output_row * 512 + column) * 2) =
        make_uint2(Bf16::pack(sum.x, sum.y), Bf16::pack(sum.z, sum.w));
    if (column != 0) return;
    const size_t index = lse_index(RequestRows{a.queries, a.heads}, request, row);
    a.lse[index] = total.lse(kLog2E);
}

/// Few parts, fewer than kLongestFew: a warp for each 128 kVectors columns of a row. `list` has the parts of row 0.
template <int kVectors, int kWarps>
__device__ __forceinline__ void merge_few(const LatentMerge& a, int request, int share, const PartList& list) {
    constexpr int kSegment = 128 * kVectors, kSegments = 512 / kSegment;
    constexpr int kFirst = FEW_FIRST / kVectors;  // parts that a warp asks for at once
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int items = a.queries * a.heads * kSegments;
#pragma unroll 1
    for (int item = share * kWarps + warp; item < items; item += a.blocks * kWarps) {
        const int row = item / kSegments, column = item % kSegments * kSegment + lane * 4;
        float4 x[kFirst][kVectors];
        const auto ask = [&](int s0) {
#pragma unroll
            for (int s = 0; s < kFirst; ++s) {
                const float* const from = a.parts.o + static_cast<size_t>(static_cast<unsigned>(list.row(s0 + s)) + row) * 512 + column;
#pragma unroll
                for (int v = 0; v < kVectors; ++v) {
                    if (s0 + s < list.count) x[s][v] = *reinterpret_cast<const float4*>(from + v * 128);
                }
            }
        };
        ask(0);
        const float own = lane < list.count ? a.parts.lse[list.row(lane) + row] : -INFINITY;
        SoftmaxRow total{warp_maximum(own), 0.0f};
        float weight = Exp2()(own * kLog2E - total.shift(kLog2E));
        total.sum = warp_sum(weight);
        weight *= total.inverse();
        // Where a part saw no key, its output was never written, and may be anything.
        float4 sum[kVectors] = {};
#pragma unroll 1
        for (int s0 = 0; s0 < list.count; s0 += kFirst) {
            if (s0 != 0) ask(s0);
#pragma unroll
            for (int s = 0; s < kFirst; ++s) {
                const float factor = __shfl_sync(0xffffffffu, weight, s0 + s);   // 0 behind the last part
#pragma unroll
                for (int v = 0; v < kVectors; ++v) {
                    if (factor != 0.0f) add_weighted(sum[v], factor, x[s][v]);
                }
            }
        }
#pragma unroll
        for (int v = 0; v < kVectors; ++v) store_merged(a, request, row, column + v * 128, sum[v], total);
    }
}

/// Many parts: a block for each 4 kLanes columns of a row. So many lanes have a part, others the next one; each asks for kFirst
/// of its parts at once. `share` of `sharing` blocks.
template <int kLanes, int kWarps, int kFirst>
__device__ __forceinline__ void merge_many(
    const LatentMerge& a, int request, int share, int sharing, const PartList& list) {
    constexpr int kSegment = 4 * kLanes, kSegments = 512 / kSegment;
    constexpr int kSharers = kWarps * 32 / kLanes;  // of the parts
    constexpr int kMost = 512;                      // parts of a row
    __shared__ float weights[kMost];
    __shared__ float reduced[2][kWarps];
    __shared__ float4 shares[kWarps][kLanes];
    const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
    const int sharer = thread / kLanes, items = a.queries * a.heads * kSegments;
#pragma unroll 1
    for (int item = share; item < items; item += sharing) {
        const int row = item / kSegments, column = item % kSegments * kSegment + thread % kLanes * 4;
        const auto load = [&](int s) {
            return *reinterpret_cast<const float4*>(a.parts.o + (list.row(s) + row) * 512 + column);
        };
        float4 first[kFirst];
#pragma unroll
        for (int i = 0; i < kFirst; ++i) {
            const int s = sharer + i * kSharers;
            if (s < list.count) first[i] = load(s);
        }
        float largest = -INFINITY;
#pragma unroll 1
        for (int s = thread; s < list.count; s += kWarps * 32) {
            weights[s] = a.parts.lse[list.row(s) + row];
            largest = fmaxf(largest, weights[s]);
        }
        largest = warp_maximum(largest);
        if (lane == 0) reduced[0][warp] = largest;
        __syncthreads();
        SoftmaxRow total{-INFINITY, 0.0f};
#pragma unroll
        for (int w = 0; w < kWarps; ++w) total.maximum = fmaxf(total.maximum, reduced[0][w]);
        const float shift = total.shift(kLog2E);
        float sum_of_weights = 0.0f;
#pragma unroll 1
        for (int s = thread; s < list.count; s += kWarps * 32) {
            weights[s] = Exp2()(weights[s] * kLog2E - shift);
            sum_of_weights += weights[s];
        }
        sum_of_weights = warp_sum(sum_of_weights);
        if (lane == 0) reduced[1][warp] = sum_of_weights;
        __syncthreads();
#pragma unroll
        for (int w = 0; w < kWarps; ++w) total.sum += reduced[1][w];
        const float inverse = total.inverse();

        // Where a part saw no key, its output was never written, and may be anything.
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < kFirst; ++i) {
            const int s = sharer + i * kSharers;
            const float weight = s < list.count ? weights[s] : 0.0f;
            if (weight != 0.0f) add_weighted(sum, weight, first[i]);
        }
#pragma unroll 2
        for (int s = sharer + kFirst * kSharers; s < list.count; s += kSharers) {
            if (weights[s] != 0.0f) add_weighted(sum, weights[s], load(s));
        }
        // Between the sharers of a warp, then between warps.
#pragma unroll
        for (int step = kLanes; step < 32; step *= 2) {
            sum.x += __shfl_xor_sync(0xffffffffu, sum.x, step);
            sum.y += __shfl_xor_sync(0xffffffffu, sum.y, step);
            sum.z += __shfl_xor_sync(0xffffffffu, sum.z, step);
            sum.w += __shfl_xor_sync(0xffffffffu, sum.w, step);
        }
        if (lane < kLanes) shares[warp][lane] = sum;
        __syncthreads();
        if (thread < kLanes) {
            for (int other = 1; other < kWarps; ++other) add_weighted(sum, 1.0f, shares[other][lane]);
            const float4 scaled = make_float4(sum.x * inverse, sum.y * inverse, sum.z * inverse, sum.w * inverse);
            store_merged(a, request, row, column, scaled, total);
        }
        __syncthreads();
    }
}

/// A warp has 128 or 256 columns, a block 64, 32 or 128.
enum class MergeForm { kNarrow, kWide, kMany, kMost, kRows };

constexpr int merge_warps(MergeForm form) { return form == MergeForm::kRows ? 8 : 4; }

template <MergeForm form>
__global__ void __launch_bounds__(merge_warps(form) * 32, form == MergeForm::kRows ? 4 : 6)
merge_latent(const __grid_constant__ LatentMerge a) {
    constexpr int kWarps = merge_warps(form);
    grid_dependency_release();
    const int block = static_cast<int>(blockIdx.x), request = block / a.blocks, share = block % a.blocks;
    const int rows = a.queries * a.heads, lane = static_cast<int>(threadIdx.x) % 32;
    // The lengths were final before the parts' kernel let this one start.
    if (a.paired && a.schedule.as_expected(lane)) {
        if (block == 0) grid_dependency_wait();
        return;
    }
    const DecodeParts<PageSchedule> parts = {a.schedule, rows};
    int before;
    const DecodeCut cut = a.schedule.cut(lane, request, before);
    if constexpr ((form == MergeForm::kNarrow || form == MergeForm::kWide) && LONG_LANES != 0) {
        constexpr int kVectors = form == MergeForm::kWide ? 2 : 1;
        // This block's own request, worked out before anything waits: the first group, and above it how many parts.
        const KvRange groups = parts.groups(request, cut, before);
        int own = groups.begin + (groups.end - groups.begin) * 1024;
        compute_now(own);
        // Blocks without rows of their own come first.
        const int with_rows = ceil_div(rows * (4 / kVectors), kWarps), spare = SPARE != 0 ? max(a.blocks - with_rows, 0) : 0;
        const int position = share >= a.blocks - spare ? request * spare + share - (a.blocks - spare)
                                                       : a.schedule.batch * spare + request * (a.blocks - spare) + share;
        parts.for_long(kLongestFew, lane, cut, [&](int other, int start) {
            const PartList its = parts.list(other, 0, parts.groups(other, cut, start));
            ManyParts<(LONG_LANES != 0 ? LONG_LANES : 16), kWarps, LONG_FIRST>{a, its, other}.merge(
                position, static_cast<int>(gridDim.x));
        });
        if (block == 0) grid_dependency_wait();
        const int count = own / 1024, first = own % 1024;
        if (count == 0 || count >= kLongestFew) return;
        grid_dependency_wait();
        merge_few<kVectors, kWarps>(a, request, share, parts.list(request, 0, {first, first + count}));
    } else if constexpr (form == MergeForm::kNarrow || form == MergeForm::kWide) {
        parts.for_long(kLongestFew, lane, cut, [&](int other) {
            const PartList its = parts.of(static_cast<long long>(other) * rows, lane);
            grid_dependency_wait();
            merge_many<16, kWarps, 2>(a, other, block, static_cast<int>(gridDim.x), its);
        });
        const PartList list = parts.of(request, 0, cut, before);
        if (block == 0) grid_dependency_wait();
        if (list.count == 0 || list.count >= kLongestFew) return;
        grid_dependency_wait();
        merge_few<form == MergeForm::kWide ? 2 : 1, kWarps>(a, request, share, list);
    } else if constexpr (MANY > (form == MergeForm::kRows ? 1 : 0)) {
        const PartList list = parts.of(request, 0, cut, before);
        if (block == 0 && list.count == 0) grid_dependency_wait();
        if (list.count == 0) return;
        constexpr int kLanes = form == MergeForm::kMany ? 16 : form == MergeForm::kMost ? 8 : 32;
        constexpr int kFirst = form == MergeForm::kMany ? 5 : form == MergeForm::kMost ? 8 : 3;
        ManyParts<kLanes, kWarps, kFirst>{a, list, request}.merge(share, a.blocks);
    } else {
        const PartList list = parts.of(request, 0, cut, before);
        if (list.count == 0 && block != 0) return;
        grid_dependency_wait();
        if (list.count == 0) return;
        constexpr int kLanes = form == MergeForm::kMany ? 16 : form == MergeForm::kMost ? 8 : 32;
        merge_many<kLanes, kWarps, form == MergeForm::kRows ? 3 : 5>(a, request, share, a.blocks, list);
    }
}

/// Launch the merge of a batch cut into a.schedule.groups chunks, fewer than 512. Returns 0 or the runtime's error.
inline int launch_latent_merge(LatentMerge a, int multiprocessors, bool early, void* queue) {
    const int batch = a.schedule.batch, rows = a.queries * a.heads;
    const int parts = a.schedule.groups / batch + 1;  // of a row, about
    const long long all_rows = static_cast<long long>(batch) * rows;
    const auto launch = [&](void (*kernel)(LatentMerge), int warps, int blocks) {
        const int most = std::max(1, (warps == 8 ? 4 : 6) * multiprocessors / batch);  // that run at a time
        a.blocks = std::min(most, blocks);
        return launch_cluster(kernel, batch * a.blocks, warps * 32, 1, 0, early, queue, a);
    };
    if (parts >= kLongList) {
        if (all_rows >= 128) return launch(merge_latent<MergeForm::kRows>, 8, rows * 4);
        if (all_rows >= 64) return launch(merge_latent<MergeForm::kMany>, 4, rows * 8);
        return launch(merge_latent<MergeForm::kMost>, 4, rows * 16);
    }
    // A block of the narrow form has one row.
    const bool room = SPARE == 0 || rows <= std::max(1, 6 * multiprocessors / batch);
    if (all_rows < 2048 && room) return launch(merge_latent<MergeForm::kNarrow>, 4, rows);
    return launch(merge_latent<MergeForm::kWide>, 4, SPARE != 0 ? rows : ceil_div(rows, 2));
}
