// SPDX-License-Identifier: MIT
// Device code that calls and reads what another file defines: wants -fgpu-rdc.
#include <cstdio>

#include "parts.h"

static __device__ int offset = 100;

__global__ void sum(int* out) { out[threadIdx.x] = table[threadIdx.x] + twice(static_cast<int>(threadIdx.x)) + offset; }

int main() {
    int *memory = nullptr, values[64];
    if (hipMalloc(&memory, sizeof values) != hipSuccess) return 2;
    fill_table();
    sum<<<1, 64>>>(memory);
    if (hipMemcpy(values, memory, sizeof values, hipMemcpyDeviceToHost) != hipSuccess) return 2;
    std::printf("%d\n", values[7]);
    return 0;
}
