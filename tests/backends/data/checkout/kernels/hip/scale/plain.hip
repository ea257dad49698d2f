// SPDX-License-Identifier: MIT
//!KERNEL summary One thread for each element.
//!KERNEL arch gfx942
//!KERNEL tune THREADS=256,128
#include "kernel.h"
#include "launch.h"
#include "isa/lane.h"

template <int kThreads>
__global__ void __launch_bounds__(kThreads) scale_kernel(const float* x, float* y, int n, float factor) {
    __shared__ float tile[kThreads];
    int i = blockIdx.x * kThreads + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : lane_id();
    __syncthreads();
    if (i < n) y[i] = factor * tile[threadIdx.x];
}

extern "C" int scale(const float* x, float* y, int n, float factor, void*, size_t, void* queue) {
    if (n < 1) return kUnsupportedShape;
    LAUNCH(scale_kernel<THREADS>, (n + THREADS - 1) / THREADS, THREADS, 0, queue)(x, y, n, factor);
    return LAUNCH_STATUS();
}
