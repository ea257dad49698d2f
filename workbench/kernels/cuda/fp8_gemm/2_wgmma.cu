// SPDX-License-Identifier: MIT
//!KERNEL summary wgmma, copies by ordinary loads and stores, a block per tile
//!KERNEL arch sm_90a
//!KERNEL step 2 wgmma, nothing overlaps
//
// The tensor cores of Hopper and nothing else of it: every block of k is copied, multiplied, added.
#include "common/swizzle.h"
#include "tile.h"

constexpr int kSharedBytes = 2 * kTileBytes + 1024;

/// 128 rows of 128 bytes from row `first` on, in the 128-byte swizzle; rows past `count` are zero.
__device__ void copy_rows(uint8_t* tile, const uint8_t* from, int first, int count, size_t pitch) {
    for (int i = threadIdx.x; i < kTile * 8; i += kThreads) {
        const int r = i / 8, chunk = i % 8;
        uint4 bytes = make_uint4(0, 0, 0, 0);
        if (first + r < count) bytes = *reinterpret_cast<const uint4*>(from + (first + r) * pitch + chunk * 16);
        *reinterpret_cast<uint4*>(tile + Swizzle<8>::offset(r, chunk)) = bytes;
    }
}

__global__ void __launch_bounds__(kThreads) wgmma_step(const Product p) {
    uint8_t* raw = swizzled_shared();
    raw += (1024 - shared_address(raw) % 1024) % 1024;
    const int first_row = blockIdx.y * kTile, first_column = blockIdx.x * kTile;
    Sums sums;
    for (int block = 0; block < p.k / kBlock; ++block) {
        copy_rows(raw, p.a + block * kBlock, first_row, p.m, p.k);
        copy_rows(raw + kTileBytes, p.b + block * kBlock, first_column, p.n, p.k);
        fence_async_shared();  // wgmma reads shared memory as asynchronous copies do
        __syncthreads();
        sums.add(p, shared_address(raw), shared_address(raw) + kTileBytes, block, first_row, first_column);
        __syncthreads();
    }
    sums.store(p, first_row, first_column);
}

extern "C" int fp8_gemm(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k, void*,
    size_t, void* queue) {
    if (!supported(m, n, k)) return kUnsupportedShape;
    const cudaError_t status =
        cudaFuncSetAttribute(wgmma_step, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    if (status != cudaSuccess) return status;
    const dim3 grid(ceil_div(n, kTile), ceil_div(m, kTile));
    LAUNCH(wgmma_step, grid, dim3(kThreads), kSharedBytes, queue)(describe(a, b, a_scale, b_scale, c, m, n, k));
    return LAUNCH_STATUS();
}
