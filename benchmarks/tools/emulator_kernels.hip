// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// Loops that keep one resource of a compute unit busy and nothing else, for the emulator's timing model.

#include <hip/hip_runtime.h>

typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef _Float16 f16x4 __attribute__((ext_vector_type(4)));
typedef short bf16x4 __attribute__((ext_vector_type(4)));
typedef unsigned u32x4 __attribute__((ext_vector_type(4)));

template <class Multiply>
__device__ void multiply_loop(float* out, int rounds, Multiply multiply) {
    f32x16 sum[4] = {};
    for (int i = 0; i < rounds; ++i)
        for (int j = 0; j < 4; ++j) sum[j] = multiply(sum[j]);
    f32x16 total = sum[0] + sum[1] + sum[2] + sum[3];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total[0];
}

__global__ void __launch_bounds__(256) matrix_fp8(float* out, int rounds, long a) {
    multiply_loop(out, rounds, [=](f32x16 c) { return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(a, a, c, 0, 0, 0); });
}

__global__ void __launch_bounds__(256) matrix_bf16(float* out, int rounds, bf16x4 a) {
    multiply_loop(out, rounds, [=](f32x16 c) { return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, a, c, 0, 0, 0); });
}

__global__ void __launch_bounds__(256) matrix_f16(float* out, int rounds, f16x4 a) {
    multiply_loop(out, rounds, [=](f32x16 c) { return __builtin_amdgcn_mfma_f32_32x32x8f16(a, a, c, 0, 0, 0); });
}

__global__ void __launch_bounds__(256) vector_f32(float* out, int rounds, float a) {
    float sum[16] = {};
    for (int i = 0; i < rounds; ++i)
        for (int j = 0; j < 16; ++j) asm volatile("v_fma_f32 %0, %1, %1, %0" : "+v"(sum[j]) : "v"(a));
    float total = 0;
    for (int j = 0; j < 16; ++j) total += sum[j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}

__global__ void __launch_bounds__(256) lds_loads(unsigned* out, int rounds, int stride) {
    __shared__ u32x4 memory[1024];
    typedef volatile __attribute__((address_space(3))) u32x4 Lds;
    for (int i = 0; i < 4; ++i) memory[threadIdx.x + 256 * i] = u32x4{threadIdx.x, 0, 0, 0};
    __syncthreads();
    u32x4 sum[8] = {};
    for (int i = 0; i < rounds; ++i)
        for (int j = 0; j < 8; ++j) sum[j] |= ((Lds*)memory)[(threadIdx.x * stride + 64 * j) % 1024];
    u32x4 total = sum[0];
    for (int j = 1; j < 8; ++j) total |= sum[j];
    out[blockIdx.x * blockDim.x + threadIdx.x] = total.x;
}

__global__ void __launch_bounds__(256) copy_16(const u32x4* from, u32x4* to, int each) {
    const size_t first = static_cast<size_t>(blockIdx.x) * 256 * each + threadIdx.x;
    for (int i = 0; i < each; ++i) to[first + 256 * i] = from[first + 256 * i];
}

extern "C" __attribute__((visibility("default"))) int emulator_loop(
    int which, int groups, int rounds, const void* from, void* to) {
    const dim3 grid(groups), block(256);
    float* const out = static_cast<float*>(to);
    switch (which) {
        case 0: matrix_fp8<<<grid, block>>>(out, rounds, 0x3838383838383838); break;
        case 1: matrix_bf16<<<grid, block>>>(out, rounds, bf16x4{0x3f80, 0x3f80, 0x3f80, 0x3f80}); break;
        case 2: matrix_f16<<<grid, block>>>(out, rounds, f16x4{1, 1, 1, 1}); break;
        case 3: vector_f32<<<grid, block>>>(out, rounds, 1.0f); break;
        case 4: lds_loads<<<grid, block>>>(static_cast<unsigned*>(to), rounds, 1); break;
        case 5: copy_16<<<grid, block>>>(static_cast<const u32x4*>(from), static_cast<u32x4*>(to), rounds); break;
        default: return 1;
    }
    return static_cast<int>(hipGetLastError());
}
