// SPDX-License-Identifier: MIT
//!KERNEL summary wrong numbers, and out of bounds
//!KERNEL arch gfx942
#include "toy_launch.h"

__global__ void scale(const float* x, float* y, int n, float alpha) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = alpha * x[i + 1];
}

TOY(64)
