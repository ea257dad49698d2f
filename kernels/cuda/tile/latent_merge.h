// SPDX-License-Identifier: MIT
// The second kernel of MLA decode on wgmma: merges the parts of requests that a chunk's edge cut, in a fixed order.
//
// A block has rows of one request and works out once where its parts lie, while the parts are still computed. A warp merges
// 128 columns of a row; where rows are few and parts many, up to eight share its parts and add up through shared memory.
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
    int blocks;           // of a request
    int warps_per_item;   // 1, 2, 4 or 8
};

constexpr int kMergeWarps = 8;

/// The rows that this block merges; `list` has the parts of row 0.
__device__ __forceinline__ void merge_rows(const LatentMerge& a, int request, int share_of_request, const PartList& list) {
    constexpr int kLatent = 512, kSegment = 128, kSegments = kLatent / kSegment;
    __shared__ float4 shares[kMergeWarps][32];
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    const int rows = a.queries * a.heads, items = rows * kSegments, together = kMergeWarps / a.warps_per_item;
    const int share = warp % a.warps_per_item;
    for (int begin = share_of_request * together; begin < items; begin += a.blocks * together) {
        const int item = begin + warp / a.warps_per_item;
        const bool active = item < items;
        const int row = active ? item / kSegments : 0, column = item % kSegments * kSegment + lane * 4;
        const auto place = [&](int part) { return list.row(part) + row; };

        // log2 of the total: every warp reads all parts' LSE of its row.
        float largest = -INFINITY;
        for (int s = lane; s < list.count; s += 32) largest = fmaxf(largest, a.parts.lse[place(s)]);
#pragma unroll
        for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
        SoftmaxRow total{largest, 0.0f};
        const float shift = total.shift(kLog2E);
        for (int s = lane; s < list.count; s += 32) total.sum += Exp2()(a.parts.lse[place(s)] * kLog2E - shift);
#pragma unroll
        for (int step = 16; step > 0; step /= 2) total.sum += __shfl_xor_sync(0xffffffffu, total.sum, step);
        const float inverse = total.inverse();

        // 32 parts of this warp's share at a time: each lane weighs one, so that the loads of outputs wait for nothing.
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const int mine = ceil_div(list.count - share, a.warps_per_item);
        for (int first = 0; first < mine; first += 32) {
            const int own = share + (first + lane) * a.warps_per_item;
            const float own_lse = own < list.count ? a.parts.lse[place(own)] : -INFINITY;
            const float own_weight = Exp2()(own_lse * kLog2E - shift) * inverse;
            const int count = min(32, mine - first);
#pragma unroll 8
            for (int i = 0; i < count; ++i) {
                const float weight = __shfl_sync(0xffffffffu, own_weight, i);
                if (weight == 0.0f) continue;  // adds nothing: if this part saw no key, its output was never written
                const long long at = place(share + (first + i) * a.warps_per_item);
                const float4 part = *reinterpret_cast<const float4*>(a.parts.o + at * kLatent + column);
                sum.x += weight * part.x;
                sum.y += weight * part.y;
                sum.z += weight * part.z;
                sum.w += weight * part.w;
            }
        }
        if (a.warps_per_item > 1) {
            shares[warp][lane] = sum;
            __syncthreads();
            if (share == 0) {
                for (int other = 1; other < a.warps_per_item; ++other) {
                    const float4 x = shares[warp + other][lane];
                    sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
                }
            }
            __syncthreads();
        }
        if (!active || share != 0) continue;
        const size_t output_row = static_cast<size_t>(request) * rows + row;
        *reinterpret_cast<uint2*>(a.o + (output_row * kLatent + column) * 2) =
            make_uint2(Bf16::pack(sum.x, sum.y), Bf16::pack(sum.z, sum.w));
        if (column == 0) {
            const size_t index = (static_cast<size_t>(request) * a.heads + row % a.heads) * a.queries + row / a.heads;
            a.lse[index] = total.lse(kLog2E);
        }
    }
}

__global__ void __launch_bounds__(kMergeWarps * 32) merge_latent(const __grid_constant__ LatentMerge a) {
    grid_dependency_release();
    const int request = static_cast<int>(blockIdx.x) / a.blocks, share = static_cast<int>(blockIdx.x) % a.blocks;
    const int rows = a.queries * a.heads;
    // The lengths were final before the parts' kernel let this one start.
    const PartList list =
        DecodeParts<PageSchedule>{a.schedule, rows}.of(static_cast<long long>(request) * rows, threadIdx.x % 32);
    grid_dependency_wait();
    if (list.count > 0) merge_rows(a, request, share, list);
}

/// Launch the merge of a batch cut into a.schedule.groups chunks. Returns 0 or the runtime's error.
inline int launch_latent_merge(LatentMerge a, int multiprocessors, bool early, void* queue) {
    const int batch = a.schedule.batch, items = a.queries * a.heads * 4;
    const int parts = a.schedule.groups / batch + 1;  // of a row, about
    a.warps_per_item = 1;
    while (a.warps_per_item < kMergeWarps && 2 * a.warps_per_item <= parts &&
           static_cast<long long>(batch) * items * a.warps_per_item < 4096) {
        a.warps_per_item *= 2;
    }
    // As many as run at a time.
    const int most = std::max(1, 6 * multiprocessors / batch);
    a.blocks = std::min(most, static_cast<int>(ceil_div<long long>(1LL * items * a.warps_per_item, kMergeWarps)));
    return launch_cluster(merge_latent, batch * a.blocks, kMergeWarps * 32, 1, 0, early, queue, a);
}
