// SPDX-License-Identifier: MIT
// The combine kernel of split-KV MLA decode on wgmma: merges the parts of requests that a chunk's edge cut, in a fixed order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ceil_div.h"
#include "common/launch_cluster.h"
#include "common/wide_rows.h"
#include "mla/call.h"
#include "mla/schedule.h"
#include "mla/wgmma_shape.h"
#include "online_softmax.h"
#include "ptx/launch_dependency.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/mma.h"
#include "ptx/thread.h"

namespace mla {

// The merge of MLA decode (mla/combine.h) where a row has many parts: a block has some columns of a row, and its lanes share
// the parts.
//
// Behind the wait for the parts lies one trip to L2, whatever the number of parts up to kTurn: every lane asks for all of its parts'
// columns at once, and for LSEs beside them. Each warp works out the weights of all parts by itself, so that no barrier stands before the
// sums of the warps are added up. All addresses of the first row are there before the wait, since what an instruction takes that runs once
// is 5 to 10 cycles.

struct LatentMerge {
    PageSchedule schedule;
    SplitWorkspace parts;
    uint8_t* o;  // as in LatentArguments
    float* lse;
    int queries, heads;
    int blocks;           // of a request
    bool paired = false;  // nothing is left to merge where requests are as expected
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
struct ManySplits {
    static constexpr int kSegment = 4 * kLanes, kSegments = 512 / kSegment;
    static constexpr int kSharers = kWarps * 32 / kLanes;  // of the parts
    static constexpr int kTurn = kFirst * kSharers;        // parts that are asked for at once
    static constexpr int kSlots = (kTurn + 31) / 32;       // of them for which a lane has the weight
    static_assert(32 % kSharers == 0, "a lane's parts have their weights in one lane each");

    const LatentMerge& a;
    const SplitList& list;
    int request;

    const float* columns;     // this thread's, of the workspace's first row
    unsigned start;           // row in the part that starts the request
    unsigned rest, rest_lse;  // in this lane's first one of the others, and in part `lane`
    unsigned pitch;           // rows between parts

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
            SoftmaxRow total;  // the sum is this lane's share of it
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
                    const float* const from =
                        columns + static_cast<size_t>(i == 0 && s == 0 ? start : rest + i * kSharers * pitch) * 512;
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
                    const float factor =
                        __shfl_sync(0xffffffffu, weight[i * kSharers / 32], i * kSharers % 32 + sharer);
                    if (factor != 0.0f) add_weighted(sum, factor, x[i]);  // 0 behind the last part
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
                const size_t at =
                    (static_cast<size_t>(request) * (a.queries * a.heads) + row) * 512 + segment * kSegment + after * 4;
                *reinterpret_cast<uint2*>(a.o + at * 2) = make_uint2(
                    Bf16::pack(sum.x * inverse, sum.y * inverse), Bf16::pack(sum.z * inverse, sum.w * inverse));
            } else if (after == 32 && segment == 0) {  // beside them, who store the columns
                a.lse[lse_index(RequestRows{a.queries, a.heads}, request, row)] = total.lse(kLog2E);
            }
            __syncthreads();  // the warps' sums are read: there may be another row, or another request
            item += sharing;
            if (item >= items) return;
            place(item);
        }
    }
};

// The second kernel of MLA decode on wgmma: merges the parts of requests that a chunk's edge cut, in a fixed order.
//
// A block has rows of one request and works out once where its parts lie, while the parts are still computed. Where parts are
// few, a warp merges 128 or 256 columns of a row; where they are many, a block merges 32, 64 or 128 columns, and its lanes share
// the parts (mla/combine.h). Both ask for the parts' outputs before they know their weights, so that one delay of memory
// covers both. The launch chooses by how many parts a request has on average; where that is few, a long request among short ones
// goes to all blocks, before their own: one after the other where there are several, so that it must be long indeed.
//
// A block without anything to merge ends at once; the first one always waits for the parts' kernel, since the launch behind
// this one counts on both being complete.

constexpr int kMostGroups = 512;  // chunks of a batch are fewer
constexpr int kLongList = 8;      // parts of a row, on average, that are many
// Parts of one request that are many beside requests of few; no more than a warp has lanes.
constexpr int kLongestFew = 16;

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
__device__ __forceinline__ void merge_few(const LatentMerge& a, int request, int share, const SplitList& list) {
    constexpr int kSegment = 128 * kVectors, kSegments = 512 / kSegment;
    constexpr int kFirst = 6 / kVectors;  // parts that a warp asks for at once
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int items = a.queries * a.heads * kSegments;
#pragma unroll 1
    for (int item = share * kWarps + warp; item < items; item += a.blocks * kWarps) {
        const int row = item / kSegments, column = item % kSegments * kSegment + lane * 4;
        float4 x[kFirst][kVectors];
        const auto ask = [&](int s0) {
#pragma unroll
            for (int s = 0; s < kFirst; ++s) {
                const float* const from =
                    a.parts.o + static_cast<size_t>(static_cast<unsigned>(list.row(s0 + s)) + row) * 512 + column;
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
                const float factor = __shfl_sync(0xffffffffu, weight, s0 + s);  // 0 behind the last part
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

/// A warp has 128 or 256 columns, a block 64, 32 or 128.
enum class MergeForm { kNarrow, kWide, kMany, kMost, kRows };

constexpr bool merges_few(MergeForm form) { return form == MergeForm::kNarrow || form == MergeForm::kWide; }
constexpr int merge_warps(MergeForm form) { return form == MergeForm::kRows ? 8 : 4; }
/// Blocks of a multiprocessor.
constexpr int merge_blocks(MergeForm form) { return form == MergeForm::kRows ? 4 : 6; }

template <MergeForm form>
__global__ void __launch_bounds__(merge_warps(form) * 32, merge_blocks(form))
    merge_latent(const __grid_constant__ LatentMerge a) {
    constexpr int kWarps = merge_warps(form);
    grid_dependency_release();
    const int block = static_cast<int>(blockIdx.x), request = block / a.blocks, share = block % a.blocks;
    const int rows = a.queries * a.heads, lane = static_cast<int>(threadIdx.x) % 32;
    // The lengths were final before the parts' kernel let this one start.
    const bool known = kExpectedCut && a.schedule.as_expected(lane);
    if (a.paired && (kExpectedCut ? known : a.schedule.as_expected(lane))) {
        if (block == 0) grid_dependency_wait();
        return;
    }
    // Blocks that start when the last ones of the parts' kernel end must not work out for long what the host knows.
    const DecodeSplits<PageSchedule> parts = {a.schedule, rows};
    int before = 0;
    const DecodeCut cut = known ? a.schedule.expected : a.schedule.cut(lane, request, before);
    const auto own_groups = [&]() -> KvRange {
        if (!known) return parts.groups(request, cut, before);
        const int first = request * cut.shares, count = cut.shares < 2 || a.schedule.gathered != 0 ? 0 : cut.shares;
        return {first, first + count};
    };
    if constexpr (merges_few(form)) {
        constexpr int kVectors = form == MergeForm::kWide ? 2 : 1;
        // This block's own request, worked out before anything waits: the first group, and above it how many parts.
        const KvRange groups = own_groups();
        int own = groups.begin + (groups.end - groups.begin) * kMostGroups;
        compute_now(own);
        // Long requests go to blocks without rows of their own first.
        const int with_rows = ceil_div(rows * (4 / kVectors), kWarps), spare = max(a.blocks - with_rows, 0),
                  busy = a.blocks - spare;
        const int position =
            share >= busy ? request * spare + share - busy : a.schedule.batch * spare + request * busy + share;
        parts.for_long(kLongestFew, lane, cut, [&](int other, int start) {
            const SplitList its = parts.list(other, 0, parts.groups(other, cut, start));
            ManySplits<8, kWarps, 6>{a, its, other}.merge(position, static_cast<int>(gridDim.x));
        });
        if (block == 0) grid_dependency_wait();
        const int count = own / kMostGroups, first = own % kMostGroups;
        if (count == 0 || count >= kLongestFew) return;
        grid_dependency_wait();
        merge_few<kVectors, kWarps>(a, request, share, parts.list(request, 0, {first, first + count}));
    } else {
        const SplitList list = parts.list(request, 0, own_groups());
        if (block == 0 && list.count == 0) grid_dependency_wait();
        if (list.count == 0) return;
        constexpr int kLanes = form == MergeForm::kMany ? 16 : form == MergeForm::kMost ? 8 : 32;
        constexpr int kFirst = form == MergeForm::kMany ? 5 : form == MergeForm::kMost ? 8 : 3;
        ManySplits<kLanes, kWarps, kFirst>{a, list, request}.merge(share, a.blocks);
    }
}

template <MergeForm form>
int launch_merge(LatentMerge a, int multiprocessors, int blocks, bool early, void* queue) {
    a.blocks =
        std::min(std::max(1, merge_blocks(form) * multiprocessors / a.schedule.batch), blocks);  // that run at a time
    return launch_cluster(
        merge_latent<form>, a.schedule.batch * a.blocks, merge_warps(form) * 32, 1, 0, early, queue, a);
}

/// Launch the merge of a batch cut into a.schedule.groups chunks, fewer than kMostGroups. Returns 0 or the runtime's error.
inline int launch_latent_merge(const LatentMerge& a, int multiprocessors, bool early, void* queue) {
    const int batch = a.schedule.batch, rows = a.queries * a.heads;
    const int parts = a.schedule.groups / batch + 1;  // of a row, about
    const long long all_rows = static_cast<long long>(batch) * rows;
    if (parts >= kLongList) {
        if (all_rows >= 128) return launch_merge<MergeForm::kRows>(a, multiprocessors, rows * 4, early, queue);
        if (all_rows >= 64) return launch_merge<MergeForm::kMany>(a, multiprocessors, rows * 8, early, queue);
        return launch_merge<MergeForm::kMost>(a, multiprocessors, rows * 16, early, queue);
    }
    // Narrow: a block has one row. Where not every row gets one, half of the warps have all rows, and the other blocks none.
    const bool room = rows <= std::max(1, merge_blocks(MergeForm::kNarrow) * multiprocessors / batch);
    if (all_rows < 2048 && room) return launch_merge<MergeForm::kNarrow>(a, multiprocessors, rows, early, queue);
    return launch_merge<MergeForm::kWide>(a, multiprocessors, rows, early, queue);
}

}  // namespace mla
