// SPDX-License-Identifier: MIT
//!KERNEL summary wgmma, tiles brought by TMA into four stages, a block per tile
//!KERNEL arch sm_90a
//!KERNEL step 3 TMA, four stages
//
// One thread keeps up to four blocks of k under way; a barrier per block tells it that both warpgroups have read a stage.
#include "common/tensor_map.h"
#include "ptx/mbarrier.h"
#include "tile.h"

constexpr int kStages = 4, kSharedBytes = kStages * 2 * kTileBytes + 1024;

__global__ void __launch_bounds__(kThreads)
    tma_step(const Product p, const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map) {
    __shared__ uint64_t full[kStages];
    const uint32_t stages = (shared_address(swizzled_shared()) + 1023) / 1024 * 1024;
    const int first_row = blockIdx.y * kTile, first_column = blockIdx.x * kTile, blocks = p.k / kBlock;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) mbarrier_init(shared_address(&full[i]), 1);
        mbarrier_fence_init();
    }
    __syncthreads();
    const auto fetch = [&](int block) {  // by thread 0
        if (block >= blocks) return;
        const uint32_t barrier = shared_address(&full[block % kStages]), to = stages + block % kStages * 2 * kTileBytes;
        mbarrier_arrive_expect(barrier, 2 * kTileBytes);
        tma_load(to, a_map, barrier, block * kBlock, first_row);
        tma_load(to + kTileBytes, b_map, barrier, block * kBlock, first_column);
    };
    if (threadIdx.x == 0) {
        for (int block = 0; block < kStages; ++block) fetch(block);
    }
    Sums sums;
    for (int block = 0; block < blocks; ++block) {
        const uint32_t stage = stages + block % kStages * 2 * kTileBytes;
        mbarrier_wait(shared_address(&full[block % kStages]), block / kStages % 2);
        sums.add(p, stage, stage + kTileBytes, block, first_row, first_column);
        __syncthreads();
        if (threadIdx.x == 0) fetch(block + kStages);
    }
    sums.store(p, first_row, first_column);
}

extern "C" int fp8_gemm(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k, void*,
    size_t, void* queue) {
    if (!supported(m, n, k)) return kUnsupportedShape;
    TensorMap a_map, b_map;
    int error = encode_tensor_map(&a_map, {a, m, k, 1}, kTile, kBlock);
    if (error == 0) error = encode_tensor_map(&b_map, {b, n, k, 1}, kTile, kBlock);
    if (error != 0) return error;
    const cudaError_t status =
        cudaFuncSetAttribute(tma_step, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    if (status != cudaSuccess) return status;
    const dim3 grid(ceil_div(n, kTile), ceil_div(m, kTile));
    LAUNCH(tma_step, grid, dim3(kThreads), kSharedBytes, queue)(
        describe(a, b, a_scale, b_scale, c, m, n, k), a_map, b_map);
    return LAUNCH_STATUS();
}
