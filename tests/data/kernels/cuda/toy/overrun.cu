// SPDX-License-Identifier: MIT
//!KERNEL summary <= where < belongs
//!KERNEL arch sm_89
#include "kernel.h"

__global__ void scale(const float* x, float* y, int n, float alpha) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = alpha * x[i < n ? i : 0];
}

extern "C" int toy(const float* x, float* y, int n, float alpha, void*, size_t, void*) {
    scale<<<(n + 256 - 1) / 256, 256>>>(x, y, n, alpha);
    return static_cast<int>(cudaGetLastError());
}
