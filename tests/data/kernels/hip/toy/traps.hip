// SPDX-License-Identifier: MIT
//!KERNEL summary gives up in the middle
//!KERNEL arch gfx942
#include "toy_launch.h"

__global__ void scale(const float* x, float* y, int n, float alpha) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 37) __builtin_trap();
    if (i < n) y[i] = alpha * x[i];
}

TOY(64)
