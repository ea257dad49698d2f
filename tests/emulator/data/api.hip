// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Kernels and host code for the tests of the HIP API: launches by <<<>>> and by name, arguments of odd sizes, device and
// managed variables, static and dynamic LDS.
#include <hip/hip_runtime.h>

#define EXPORT extern "C" __attribute__((visibility("default")))

struct Triple {
    char small;
    double large;
    short medium;
};

__device__ float factor = 2.0f;
__device__ int table[4] = {1, 2, 3, 4};
__managed__ int counter = 5;

extern "C" __global__ void add(const float* a, const float* b, float* out, int n) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) out[i] = a[i] + b[i];
}

extern "C" __global__ void mixed(char first, Triple triple, float* out, unsigned char last) {
    if (threadIdx.x == 0) {
        out[0] = first;
        out[1] = triple.small;
        out[2] = static_cast<float>(triple.large);
        out[3] = triple.medium;
        out[4] = last;
    }
}

extern "C" __global__ void scale(float* values, int n) {
    const int i = static_cast<int>(threadIdx.x);
    if (i < n) values[i] = values[i] * factor + static_cast<float>(table[i & 3]);
    if (i == 0) atomicAdd(&counter, n);
}

extern "C" __global__ __launch_bounds__(256) void reverse(int* values) {
    __shared__ int fixed[256];
    extern __shared__ int flexible[];
    const unsigned i = threadIdx.x;
    fixed[i] = values[i];
    flexible[i] = 1000;
    __syncthreads();
    values[i] = fixed[blockDim.x - 1 - i] + flexible[blockDim.x - 1 - i];
}

extern "C" __global__ void nothing() {}

EXPORT int host_add(const float* a, const float* b, float* out, int n) {
    hipLaunchKernelGGL(add, dim3((n + 63) / 64), dim3(64), 0, nullptr, a, b, out, n);
    return hipGetLastError();
}

EXPORT int host_scale(float new_factor, float* values, int n) {
    if (hipError_t status = hipMemcpyToSymbol(HIP_SYMBOL(factor), &new_factor, sizeof(float)); status != hipSuccess) {
        return status;
    }
    scale<<<1, 64>>>(values, n);
    return hipGetLastError();
}

EXPORT int host_table(int* out) { return hipMemcpyFromSymbol(out, HIP_SYMBOL(table), sizeof table); }

EXPORT int host_counter(void) { return counter; }

EXPORT int host_mixed(float* out) {
    mixed<<<1, 64>>>(-3, Triple{7, 2.5, -900}, out, 250);
    return hipGetLastError();
}

EXPORT int host_reverse(int* values, int threads, int dynamic) {
    reverse<<<1, threads, dynamic>>>(values);
    return hipGetLastError();
}

EXPORT int host_occupancy(int threads, int dynamic) {
    int blocks = -1;
    const hipError_t status = hipOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reverse, threads, dynamic);
    return status == hipSuccess ? blocks : -static_cast<int>(status);
}

EXPORT int host_attributes(int* out) {
    hipFuncAttributes attributes;
    const hipError_t status = hipFuncGetAttributes(&attributes, reinterpret_cast<const void*>(reverse));
    out[0] = static_cast<int>(attributes.sharedSizeBytes);
    out[1] = attributes.maxThreadsPerBlock;
    out[2] = attributes.numRegs;
    out[3] = attributes.maxDynamicSharedSizeBytes;
    return status;
}
