// SPDX-License-Identifier: MIT
// A kernel that lets the one behind it start at once, and writes the lengths that one reads only some time later.
#include <cuda_runtime.h>

__global__ void write_late(int* to, const int* from, int count, long long cycles) {
    asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
    const long long start = clock64();
    while (clock64() - start < cycles) {
    }
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) to[i] = from[i];
}

extern "C" int late_lengths(int* to, const int* from, int count, long long cycles, cudaStream_t queue) {
    write_late<<<1, 128, 0, queue>>>(to, from, count, cycles);
    return static_cast<int>(cudaGetLastError());
}
