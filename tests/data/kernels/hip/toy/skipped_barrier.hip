// SPDX-License-Identifier: MIT
//!KERNEL summary half of the lanes skip a barrier: a GPU may hang
//!KERNEL arch gfx942
#include "toy_launch.h"

__global__ void scale(const float* x, float* y, int n, float alpha) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x % 2 == 0) __syncthreads();
    if (i < n) y[i] = alpha * x[i];
}

TOY(256)
