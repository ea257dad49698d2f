// SPDX-License-Identifier: MIT
// Floats by their bits: exponents added to as integers, and bits read without conversion.
#pragma once

#include <cstdint>

/// x * 2^n where `shifted` is n + 1.5 * 2^23, whose lowest bits count in ones. No care is taken of exponents that overflow.
/// One asm, not a cast: the compiler would copy registers of a cast, and wgmma's accumulators bear no copies.
__device__ __forceinline__ float add_exponent(float x, float shifted) {
    float result;
    asm("{ .reg .b32 n, bits;\n"
        "mov.b32 n, %2;\n"
        "mov.b32 bits, %1;\n"
        "shl.b32 n, n, 23;\n"
        "add.s32 bits, bits, n;\n"
        "mov.b32 %0, bits; }\n"
        : "=f"(result)
        : "f"(x), "f"(shifted));
    return result;
}

/// The bits of x. Those of numbers that are not negative are ordered as the numbers are.
__device__ __forceinline__ int float_bits(float x) { return __float_as_int(x); }

/// The float of these bits.
__device__ __forceinline__ float bits_float(int bits) { return __int_as_float(bits); }
