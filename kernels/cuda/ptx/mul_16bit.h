// SPDX-License-Identifier: MIT
// Two fp16 products at once (mul.rn.f16x2): a full-rate instruction, rounded to nearest even.
#pragma once

#include <cstdint>

__device__ __forceinline__ uint32_t multiply_halves(uint32_t a, uint32_t b) {
    uint32_t product;
    asm("mul.rn.f16x2 %0, %1, %2;\n" : "=r"(product) : "r"(a), "r"(b));
    return product;
}
