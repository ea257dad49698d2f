// SPDX-License-Identifier: MIT
//!KERNEL summary What real HIP kernels use: matrix cores, both kinds of shared memory, mathematics, atomics, 16-bit types.
//!KERNEL arch gfx942
#include <hip/hip_runtime.h>

#include "kernel.h"
#include "launch.h"

using f32x4 = float __attribute__((ext_vector_type(4)));
using f32x16 = float __attribute__((ext_vector_type(16)));
using bf16x4 = short __attribute__((ext_vector_type(4)));

extern __shared__ char dynamic_lds[];
static __constant__ float table[4] = {1.0f, 2.0f, 4.0f, 8.0f};

__global__ void __launch_bounds__(256, 2) matrix_cores(const long* a, const long* b, float* c) {
    f32x4 small = {0.0f, 0.0f, 0.0f, 0.0f};
    small = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a[threadIdx.x], b[threadIdx.x], small, 0, 0, 0);
    f32x16 large = {};
    large = __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(a[threadIdx.x], b[threadIdx.x], large, 0, 0, 0);
    bf16x4 left = {1, 2, 3, 4};
    small = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(left, left, small, 0, 0, 0);
    c[threadIdx.x] = small[0] + small[3] + large[15];
}

__global__ void __launch_bounds__(256) mathematics(const float* x, float* y, int n) {
    __shared__ float tile[256];
    float v = x[threadIdx.x];
    v = expf(v) + exp2f(v) + __builtin_amdgcn_exp2f(v) + logf(v) + log2f(v) + __expf(v) + __logf(v);
    v += sqrtf(v) + rsqrtf(v) + sinf(v) + cosf(v) + tanhf(v) + powf(v, 1.5f) + erff(v) + fmaxf(v, 0.0f) + fabsf(v);
    v += __shfl_xor(v, 16) + __shfl_down(v, 1) + __int_as_float(__float_as_int(v) ^ 1);
    v += static_cast<float>(static_cast<__bf16>(v)) + static_cast<float>(static_cast<_Float16>(v));
    tile[threadIdx.x] = v;
    reinterpret_cast<float*>(dynamic_lds)[threadIdx.x] = tile[threadIdx.x ^ 1];
    __syncthreads();
    if (__popcll(__ballot(v > 0.0f)) > 3) atomicAdd(&y[n], v);
    y[blockIdx.x * blockDim.x + threadIdx.x] = reinterpret_cast<float*>(dynamic_lds)[n] + table[n & 3] + gridDim.x;
}

namespace {
__global__ void scale_kernel(const float* x, float* y, int n, float factor) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = factor * x[i];
}
}   // namespace

extern "C" int scale(const float* x, float* y, int n, float factor, void* workspace, size_t, void* queue) {
    const long* packed = static_cast<const long*>(workspace);
    LAUNCH(matrix_cores, dim3(1), dim3(256), 0, queue)(packed, packed, y);
    LAUNCH(mathematics, dim3(n, 2, 3), dim3(256), 1024, queue)(x, y, n);
    LAUNCH(scale_kernel, 1, 256, 0, queue)(x, y, n, factor);
    return LAUNCH_STATUS();
}
