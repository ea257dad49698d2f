// SPDX-License-Identifier: MIT
//!KERNEL summary as 6, two warpgroups, tiles brought by TMA into two stages
//!KERNEL arch sm_90a
//!KERNEL step 7 TMA, two stages
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 40-50TFLOP/s@H100
//
// One instruction of one thread brings a tile, swizzled, while the one before is multiplied. No warps are specialised: a barrier
// per tile tells that thread that everyone has read a stage.
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/tma.h"
#include "tma_maps.h"
#include "wgmma_rows.h"

constexpr int kRows = 128, kTileKeys = 128, kThreads = 256, kStages = 2;
constexpr int kQueryBytes = kRows * 128, kTileBytes = kTileKeys * 128;
constexpr int kSharedBytes = kQueryBytes + 2 * kStages * kTileBytes + 1024;

template <class T>
__global__ void __launch_bounds__(kThreads) tma_step(const Step<T> p, const __grid_constant__ Maps maps) {
    __shared__ uint64_t full[kStages];
    uint32_t query = shared_address(swizzled_shared());
    query = (query + 1023) / 1024 * 1024;
    const uint32_t stages = query + kQueryBytes;
    const int tile = blockIdx.x * kRows, group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4,
              lane = threadIdx.x % 32;
    const int row = tile + group * 64 + warp * 16 + lane / 4;
    const int end = p.seen_by_tile(tile, kRows);
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) mbarrier_init(shared_address(&full[i]), 1);
        mbarrier_fence_init();
    }
    __syncthreads();
    const auto fetch = [&](int step) {  // by thread 0
        const int first = step * kTileKeys, stage = step % kStages;
        if (first >= end) return;
        const uint32_t barrier = shared_address(&full[stage]), to = stages + stage * 2 * kTileBytes;
        mbarrier_arrive_expect(barrier, 2 * kTileBytes + (step == 0 ? kQueryBytes : 0));
        if (step == 0) tma_load_5d(query, maps.query, barrier, 0, tile, 0, p.head(), p.sequence());
        tma_load_5d(to, maps.keys, barrier, 0, first, 0, p.key_head(), p.sequence());
        tma_load_5d(to + kTileBytes, maps.values, barrier, 0, first, 0, p.key_head(), p.sequence());
    };
    if (threadIdx.x == 0) {
        for (int step = 0; step < kStages; ++step) fetch(step);
    }
    float out[kHeadDim / 2] = {}, scores[kTileKeys / 2];
    uint32_t packed[kTileKeys / 16][4];
    SoftmaxRow rows[2];
    for (int step = 0; step * kTileKeys < end; ++step) {
        const uint32_t keys = stages + step % kStages * 2 * kTileBytes;
        mbarrier_wait(shared_address(&full[step % kStages]), step / kStages % 2);
        issue_scores<T, kTileKeys>(scores, query + group * 64 * 128, keys);
        wgmma_wait<0>();
        wgmma_results(scores);
        const int first = step * kTileKeys, limits[2] = {p.seen(row) - first, p.seen(row + 8) - first};
        softmax_step<T, kTileKeys>(scores, packed, out, rows, limits, lane, p.scale);
        issue_output<T, kTileKeys>(out, packed, keys + kTileBytes);
        wgmma_wait<0>();
        wgmma_results(out);
        __syncthreads();  // both warpgroups have read this stage
        if (threadIdx.x == 0) fetch(step + kStages);
    }
    store_rows(p, row, out, rows, lane);
}

template <class T>
int launch(const Call& call, void* queue) {
    Maps maps;
    if (const int error = encode(&maps, call, kRows, kTileKeys); error != 0) return error;
    const cudaError_t status =
        cudaFuncSetAttribute(tma_step<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    if (status != cudaSuccess) return status;
    const dim3 grid(ceil_div(call.queries, kRows), call.batch * call.heads);
    LAUNCH(tma_step<T>, grid, dim3(kThreads), kSharedBytes, queue)(call.step<T>(), maps);
    return LAUNCH_STATUS();
}

LADDER_ENTRY(launch)
