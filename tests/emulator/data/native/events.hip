// SPDX-License-Identifier: MIT
// Launches with events of their own, by the three ways of hip_ext.h.
#include <hip/hip_hcc.h>

#include <cstdio>

__global__ void add(int* numbers, int count, long step) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(count > 0);  // <cassert> comes with HIP, as with ROCm's headers
    if (i < count) numbers[i] += static_cast<int>(step);
}

int main() {
    int* numbers = nullptr;
    hipEvent_t start, stop;
    (void)hipMalloc(&numbers, 300 * sizeof(int));
    (void)hipMemset(numbers, 0, 300 * sizeof(int));
    (void)hipEventCreate(&start);
    (void)hipEventCreate(&stop);
    hipExtLaunchKernelGGL(add, dim3(3), dim3(128), 0, nullptr, start, stop, 0, numbers, 300, 5);  // an int for a long
    float milliseconds = -1.0f;
    const hipError_t ended = hipEventSynchronize(stop);
    const hipError_t timed = hipEventElapsedTime(&milliseconds, start, stop);

    hipFunction_t function = nullptr;
    (void)hipGetFuncBySymbol(&function, reinterpret_cast<const void*>(add));
    int count = 300;
    long step = 70;
    void* parameters[] = {&numbers, &count, &step};
    const hipError_t module = hipExtModuleLaunchKernel(function, 384, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr);
    const hipError_t older = hipHccModuleLaunchKernel(function, 384, 1, 1, 128, 1, 1, 0, nullptr, parameters, nullptr);
    int found[300];
    (void)hipMemcpy(found, numbers, sizeof found, hipMemcpyDeviceToHost);
    std::printf(
        "%d %d %d %d %d %d %d\n", ended, timed, milliseconds >= 0.0f, module, older, found[0], found[299]);
    return 0;
}
