// SPDX-License-Identifier: MIT
// Pairs of 16-bit elements back to fp32: what Bf16::pack and Fp16::pack (ptx/mma_16bit.h) made.
#pragma once

#include <cstdint>

#include "ptx/mma_16bit.h"

/// The lower and the upper element of a register, exactly.
template <class Element>
__device__ __forceinline__ float2 unpack_pair(uint32_t pair);

template <>
__device__ __forceinline__ float2 unpack_pair<Bf16>(uint32_t pair) {
    return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

template <>
__device__ __forceinline__ float2 unpack_pair<Fp16>(uint32_t pair) {
    float2 result;
    asm("{ .reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high; }\n"
        : "=f"(result.x), "=f"(result.y)
        : "r"(pair));
    return result;
}
