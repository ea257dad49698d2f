// SPDX-License-Identifier: MIT
// Two 16-bit products at once (mul.rn.f16x2; mul.rn.bf16x2, sm_90): full-rate instructions, rounded to nearest even.
#pragma once

#include <cstdint>

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
