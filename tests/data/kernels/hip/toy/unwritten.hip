// SPDX-License-Identifier: MIT
//!KERNEL summary the last elements of a tile are never written
//!KERNEL arch gfx942
#include "toy_launch.h"

__global__ void scale(const float* x, float* y, int n, float alpha) {
    __shared__ float tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 8 < n) tile[threadIdx.x] = x[i];
    __syncthreads();
    if (i < n) y[i] = alpha * tile[threadIdx.x];
}

TOY(64)
