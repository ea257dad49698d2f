// SPDX-License-Identifier: MIT
//!KERNEL summary as 6, two warpgroups, tiles brought by TMA into two stages
//!KERNEL arch sm_90a
//!KERNEL step 7 TMA, two stages
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 40-50TFLOP/s@H100
//
// One instruction of one thread brings a tile, swizzled, while the one before is multiplied. No warps are specialised: a barrier
// per tile tells that thread that everyone has read a stage.
#include "common/tensor_map.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/tma.h"
#include "wgmma_rows.h"

constexpr int kRows = 128, kTileKeys = 128, kThreads = 256, kStages = 2;
constexpr int kQueryBytes = kRows * 128, kTileBytes = kTileKeys * 128;
constexpr int kSharedBytes = kQueryBytes + 2 * kStages * kTileBytes + 1024;

__global__ void __launch_bounds__(kThreads) tma_step(
    const Step p, const __grid_constant__ TensorMap query_map, const __grid_constant__ TensorMap key_map,
    const __grid_constant__ TensorMap value_map) {
    __shared__ uint64_t full[kStages];
    uint32_t query = shared_address(swizzled_shared());
    query = (query + 1023) / 1024 * 1024;
    const uint32_t stages = query + kQueryBytes;
    const int tile = blockIdx.x * kRows, group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4,
              lane = threadIdx.x % 32;
    const int row = tile + group * 64 + warp * 16 + lane / 4;
    const int end = p.seen_by_tile(tile, kRows), key_head = p.head() / (p.heads / p.key_heads);
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
        if (step == 0) tma_load_5d(query, query_map, barrier, 0, tile, 0, p.head(), p.sequence());
        tma_load_5d(to, key_map, barrier, 0, first, 0, key_head, p.sequence());
        tma_load_5d(to + kTileBytes, value_map, barrier, 0, first, 0, key_head, p.sequence());
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
        issue_scores<kTileKeys>(scores, query + group * 64 * 128, keys);
        wgmma_wait<0>();
        wgmma_results(scores);
        const int first = step * kTileKeys, limits[2] = {p.seen(row) - first, p.seen(row + 8) - first};
        softmax_step<kTileKeys>(scores, packed, out, rows, limits, lane, p.scale);
        issue_output<kTileKeys>(out, packed, keys + kTileBytes);
        wgmma_wait<0>();
        wgmma_results(out);
        __syncthreads();  // both warpgroups have read this stage
        if (threadIdx.x == 0) fetch(step + kStages);
    }
    store_rows(p, row, out, rows, lane);
}

extern "C" int flash_attention(
    const void* q, const void* k, const void* v, void* o, float* lse, int batch, int seqlen_q, int seqlen_k,
    int heads_q, int heads_k, int head_dim, int half, int causal, float softmax_scale, void*, size_t, void* queue) {
    if (head_dim != kHeadDim || half != 0 || batch * heads_q > 65535) return kUnsupportedShape;
    const Step p = {nullptr, nullptr, nullptr, static_cast<__nv_bfloat16*>(o), lse, batch, seqlen_q, seqlen_k,
                    heads_q, heads_k, causal,  softmax_scale * kLog2E};
    TensorMap query_map, key_map, value_map;
    int error = encode_head_tensor_map(&query_map, {q, batch, seqlen_q, heads_q, kHeadDim}, kRows);
    if (error == 0) error = encode_head_tensor_map(&key_map, {k, batch, seqlen_k, heads_k, kHeadDim}, kTileKeys);
    if (error == 0) error = encode_head_tensor_map(&value_map, {v, batch, seqlen_k, heads_k, kHeadDim}, kTileKeys);
    if (error != 0) return error;
    const cudaError_t status =
        cudaFuncSetAttribute(tma_step, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    if (status != cudaSuccess) return status;
    const dim3 grid(ceil_div(seqlen_q, kRows), batch * heads_q);
    LAUNCH(tma_step, grid, dim3(kThreads), kSharedBytes, queue)(p, query_map, key_map, value_map);
    return LAUNCH_STATUS();
}
