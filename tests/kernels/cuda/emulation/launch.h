// SPDX-License-Identifier: MIT
// Stands in for kernels/common/launch.h when a kernel is compiled for the emulation (machine.h).
#pragma once

#include "intrinsics.h"
#include "machine.h"
#include "status.h"

#define LAUNCH(kernel, grid, block, shared_bytes, queue) \
    [&](auto... arguments) { ::emulation::Launch{dim3(grid), dim3(block), size_t(shared_bytes)}(kernel, arguments...); }
#define LAUNCH_STATUS() 0

using cudaError_t = int;
enum { cudaSuccess = 0 };
enum {
    cudaFuncAttributeMaxDynamicSharedMemorySize,
    cudaDevAttrMultiProcessorCount,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor
};

template <class Kernel>
int cudaFuncSetAttribute(Kernel, int, int bytes) {
#if defined(__CUDA_ARCH_LIST__)
    constexpr int kOldest[] = {__CUDA_ARCH_LIST__};
    return bytes <= (kOldest[0] >= 900 ? 227 : 99) * 1024 ? 0 : 1;
#else
    return bytes <= 99 * 1024 ? 0 : 1;  // the smallest limit of the targets
#endif
}
inline int cudaGetDevice(int* device) { return *device = 0; }
inline int cudaDeviceGetAttribute(int* value, int attribute, int) {  // shared memory as an Ada device has it
    *value = attribute == cudaDevAttrMultiProcessorCount ? ::emulation::machine().processors : 100 << 10;
    return 0;
}
