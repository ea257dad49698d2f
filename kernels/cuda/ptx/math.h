// SPDX-License-Identifier: MIT
// Arithmetic in one instruction: powers of two, logarithms and reciprocals of the special function unit, pairs of 16-bit
// products.
#pragma once

#include <cstdint>

// 2^x on the special function unit: ex2.approx.ftz.f32 (16 results per clock and SM).

/// Relative error about 2^-22; -inf gives 0, subnormal results become 0, NaN stays NaN.
struct Exp2 {
    __device__ __forceinline__ float operator()(float x) const {
        float result;
        asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
        return result;
    }
};

// The rest of the special function unit: one instruction each, without the branches of the exact functions.

/// 1 / x, off by at most one unit in the last place; subnormals count as 0.
__device__ __forceinline__ float reciprocal_approximate(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
    return result;
}

/// Base-2 logarithm, off by at most 2^-22 for x in [0.5, 2], by 2^-22 of itself elsewhere; subnormals count as 0.
__device__ __forceinline__ float log2_approximate(float x) {
    float result;
    asm("lg2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
    return result;
}

// Two 16-bit products at once (mul.rn.f16x2; mul.rn.bf16x2, sm_90): full-rate instructions, rounded to nearest even.

/// fp16
__device__ __forceinline__ uint32_t multiply_halves(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;\n" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

/// bf16
__device__ __forceinline__ uint32_t multiply_bfloats(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.rn.bf16x2 %0, %1, %2;\n" : "=r"(product) : "r"(a), "r"(b));
    return product;
}
