// SPDX-License-Identifier: MIT
//!KERNEL summary an array that is indexed at run time lies in local memory
//!KERNEL arch gfx942
#include "toy_launch.h"

__global__ void scale(const float* x, float* y, int n, float alpha) {
    float kept[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < 64; ++k) kept[k] = i < n ? x[(i & ~63) + k < n ? (i & ~63) + k : i] : 0.0f;
    if (i < n) y[i] = alpha * kept[i % 64];
}

TOY(64)
