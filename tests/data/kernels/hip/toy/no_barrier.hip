// SPDX-License-Identifier: MIT
//!KERNEL summary waves read what others have yet to write: a __syncthreads() is missing
//!KERNEL arch gfx942
#include "toy_launch.h"

__global__ void scale(const float* x, float* y, int n, float alpha) {
    __shared__ float tile[256];
    int base = blockIdx.x * 256, mirrored = 255 - threadIdx.x, i = base + threadIdx.x;
    tile[mirrored] = base + mirrored < n ? x[base + mirrored] : 0.0f;
    if (i < n) y[i] = alpha * tile[threadIdx.x];
}

TOY(256)
