// SPDX-License-Identifier: MIT
// What kernels that are written once for both vendors need: the width of a warp (wave), shuffles, 16-bit elements as
// fp32, and 16 bytes at a time.
#pragma once

#include "fp8.h"  // bf16 as bits
#include "launch.h"

#if defined(__HIP__) || defined(__HIPCC__)
constexpr int kWarp = 64;  // AMD's wave

/// The value of lane `lane ^ mask`.
__device__ __forceinline__ float from_lane_xor(float value, int mask) { return __shfl_xor(value, mask); }

__device__ __forceinline__ float half_to_float(uint16_t code) { return __builtin_bit_cast(_Float16, code); }
__device__ __forceinline__ uint16_t float_to_half(float value) {
    return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
}
__device__ __forceinline__ uint16_t float_to_bfloat(float value) { return float_to_bf16(value); }

#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int kWarp = 32;

/// The value of lane `lane ^ mask`.
__device__ __forceinline__ float from_lane_xor(float value, int mask) {
    return __shfl_xor_sync(0xffffffffu, value, mask);
}

__device__ __forceinline__ float half_to_float(uint16_t code) { return __half2float(__ushort_as_half(code)); }
__device__ __forceinline__ uint16_t float_to_half(float value) { return __half_as_ushort(__float2half_rn(value)); }
__device__ __forceinline__ uint16_t float_to_bfloat(float value) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
#endif

// Elements in memory, as types: how each becomes fp32 and back. A Pack of them is 16 bytes, the widest load.

struct Float {
    using Bits = float;
    static __device__ __forceinline__ float load(Bits bits) { return bits; }
    static __device__ __forceinline__ Bits store(float value) { return value; }
};

struct Half {
    using Bits = uint16_t;
    static __device__ __forceinline__ float load(Bits bits) { return half_to_float(bits); }
    static __device__ __forceinline__ Bits store(float value) { return float_to_half(value); }
};

struct Bfloat {
    using Bits = uint16_t;
    static __device__ __forceinline__ float load(Bits bits) { return bf16_to_float(bits); }
    static __device__ __forceinline__ Bits store(float value) { return float_to_bfloat(value); }
};

/// 16 bytes of elements.
template <class Element>
struct alignas(16) Pack {
    static constexpr int kCount = 16 / sizeof(typename Element::Bits);
    typename Element::Bits values[kCount];
};

/// Whether `pointer` can be read 16 bytes at a time.
__host__ __device__ __forceinline__ bool is_aligned(const void* pointer) {
    return reinterpret_cast<size_t>(pointer) % 16 == 0;
}

// Reductions: every thread gets the result.

struct Sum {
    static constexpr float kNeutral = 0.0f;
    __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

struct Max {
    static constexpr float kNeutral = -INFINITY;
    __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// Over the lanes of a warp.
template <class Operation>
__device__ __forceinline__ float reduce_warp(float value, Operation operation) {
#pragma unroll
    for (int mask = kWarp / 2; mask > 0; mask /= 2) value = operation(value, from_lane_xor(value, mask));
    return value;
}

/// Over the kThreads threads of a block. `scratch` holds a float per warp; the call begins and ends with a barrier where
/// scratch is used, so that it may be called again.
template <int kThreads, class Operation>
__device__ __forceinline__ float reduce_block(float value, float* scratch, Operation operation) {
    constexpr int kWarps = kThreads / kWarp;
    value = reduce_warp(value, operation);
    if (kWarps == 1) return value;
    __syncthreads();
    if (threadIdx.x % kWarp == 0) scratch[threadIdx.x / kWarp] = value;
    __syncthreads();
    float result = Operation::kNeutral;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) result = operation(result, scratch[warp]);
    return result;
}
