// SPDX-License-Identifier: MIT
//!KERNEL summary right, and as slow as its tunable says
//!KERNEL arch gfx942
//!KERNEL tune LAUNCHES=1,3
#include <hip/hip_runtime.h>

#include "kernel.h"

__global__ void scale(const float* x, float* y, int n, float alpha) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = alpha * x[i];
}

extern "C" int toy(const float* x, float* y, int n, float alpha, void*, size_t, void*) {
    for (int launch = 0; launch < LAUNCHES; ++launch) scale<<<(n + 63) / 64, 64>>>(x, y, n, alpha);
    return static_cast<int>(hipGetLastError());
}
