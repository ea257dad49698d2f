// SPDX-License-Identifier: MIT
//!KERNEL summary neighbours change places, as with a wrong map of fragments
//!KERNEL arch gfx942
#include "toy_launch.h"

__global__ void scale(const float* x, float* y, int n, float alpha) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = alpha * x[i ^ 1];
}

TOY(64)
