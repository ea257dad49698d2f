// SPDX-License-Identifier: MIT
//!KERNEL summary One thread for each element; a bounded and an unbounded kernel, one that spills, dynamic shared memory.
//!KERNEL arch sm_89 sm_90a
//!KERNEL tune THREADS=256,128
#include "kernel.h"
#include "launch.h"
#include "ptx/lane.h"

template <int kThreads>
__global__ void __launch_bounds__(kThreads) scale_kernel(const float* x, float* y, int n, float factor) {
    __shared__ float tile[kThreads];
    int i = blockIdx.x * kThreads + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = factor * tile[threadIdx.x];
}

__global__ void unbounded(float* y) { y[threadIdx.x] = lane_id(); }

__global__ void __launch_bounds__(1024) spills(const float* x, float* y, int n) {
    float kept[128];
#pragma unroll
    for (int i = 0; i < 128; ++i) kept[i] = x[i * n + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 128; ++i) y[i * n + threadIdx.x] = kept[i] * kept[(i * 7) % 128];
}

__global__ void dynamic(float* y) {
    extern __shared__ float rows[];
    rows[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = rows[threadIdx.x ^ 1];
}

extern "C" int scale(const float* x, float* y, int n, float factor, void*, size_t, void* queue) {
    if (n < 1) return kUnsupportedShape;
    LAUNCH(scale_kernel<THREADS>, (n + THREADS - 1) / THREADS, THREADS, 0, queue)(x, y, n, factor);
    if (n > 1 << 30) {   // never: here for the compiler's report alone
        LAUNCH(unbounded, 1, 32, 0, queue)(y);
        LAUNCH(spills, 1, 1024, 0, queue)(x, y, n);
        LAUNCH(dynamic, 1, 32, 4096, queue)(y);
    }
    return LAUNCH_STATUS();
}
