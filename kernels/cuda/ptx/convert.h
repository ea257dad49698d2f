// SPDX-License-Identifier: MIT
// Conversions between number formats, and the byte moves they need: e4m3, bf16, fp16, fp32.
#pragma once

#include <cstdint>

#include "ptx/mma.h"

// Byte selection from a register pair (prmt).

/// Byte i of the result is byte (kSelector >> 4i) & 7 of the eight bytes low[0..3], high[0..3].
template <uint32_t kSelector>
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high) {
    static_assert(
        (kSelector & ~0x7777u) == 0, "four nibbles of 0..7: bit 3 would replicate a sign, which is not meant");
    uint32_t result;
    asm("prmt.b32 %0, %1, %2, %3;\n" : "=r"(result) : "r"(low), "r"(high), "n"(kSelector));
    return result;
}

/// The same with a selector that differs between lanes; its nibbles are 0 to 7, too.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t result;
    asm("prmt.b32 %0, %1, %2, %3;\n" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
    return result;
}

// Floats as their bits and back, without conversion. Those of numbers that are not negative are ordered as the numbers are.

__device__ __forceinline__ int float_bits(float x) { return __float_as_int(x); }
__device__ __forceinline__ float bits_float(int bits) { return __int_as_float(bits); }

// Pairs of 16-bit elements back to fp32: what Bf16::pack and Fp16::pack (ptx/mma.h) made.

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

// e4m3 to fp16, two at a time and exact (cvt.rn.f16x2.e4m3x2, sm_89 and later): every e4m3 value, NaN included, is an fp16
// value.

/// Bytes 0 and 1 of `bytes`, in that order from the low half up.
__device__ __forceinline__ uint32_t unpack_e4m3_low(uint32_t bytes) {
    uint32_t halves;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low; }\n" : "=r"(halves) : "r"(bytes));
    return halves;
}

/// Bytes 2 and 3 of `bytes`.
__device__ __forceinline__ uint32_t unpack_e4m3_high(uint32_t bytes) {
    uint32_t halves;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high; }\n"
        : "=r"(halves)
        : "r"(bytes));
    return halves;
}

// fp32 to e4m3, four at a time: nearest even, what exceeds 448 becomes 448 (cvt.rn.satfinite.e4m3x2.f32, sm_89 and later).

/// The codes of a, b, c and d from byte 0 up. NaN stays NaN.
__device__ __forceinline__ uint32_t pack_e4m3(float a, float b, float c, float d) {
    uint32_t codes;
    asm("{ .reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high}; }\n"
        : "=r"(codes)
        : "f"(a), "f"(b), "f"(c), "f"(d));
    return codes;
}
