// SPDX-License-Identifier: MIT
//!KERNEL summary every lane of a wave hits the same bank of LDS, and loads lie far apart
//!KERNEL arch gfx942
#include "toy_launch.h"

__global__ void scale(const float* x, float* y, int n, float alpha) {
    __shared__ float tile[64 * 32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x * 32] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = alpha * tile[threadIdx.x * 32];
}

TOY(64)
