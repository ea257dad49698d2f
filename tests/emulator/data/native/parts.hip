// SPDX-License-Identifier: MIT
#include "parts.h"

static __device__ int offset = 1;
__device__ int table[64];

__device__ int twice(int x) { return 2 * x + offset; }

__global__ void fill_table_kernel() { table[threadIdx.x] = twice(static_cast<int>(threadIdx.x)); }

void fill_table() { fill_table_kernel<<<1, 64>>>(); }
