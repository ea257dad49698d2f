// SPDX-License-Identifier: MIT
// A kernel beside what the host expects of each of its threads, for programs that print a line for each of their parts.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

/// Print "ok", or the first thread of so many blocks of 64 that differs.
inline void compare(const char* name, int blocks, void (*kernel)(int*), int (*expected)(int)) {
    std::vector<int> host(static_cast<size_t>(64 * blocks));
    int* device;
    if (cudaMalloc(&device, host.size() * sizeof(int)) != cudaSuccess) std::exit(2);
    kernel<<<blocks, 64>>>(device);
    if (const cudaError_t error = cudaMemcpy(host.data(), device, host.size() * sizeof(int), cudaMemcpyDeviceToHost)) {
        std::printf("%s: %s\n", name, cudaGetErrorString(error));
        std::exit(3);
    }
    for (int i = 0; i < 64 * blocks; ++i)
        if (host[i] != expected(i)) {
            std::printf("%s: thread %d has %d instead of %d\n", name, i, host[i], expected(i));
            return;
        }
    std::printf("%s: ok\n", name);
}
