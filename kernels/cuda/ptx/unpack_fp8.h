// SPDX-License-Identifier: MIT
// e4m3 to fp16, two at a time and exact (cvt.rn.f16x2.e4m3x2, sm_89 and later): every e4m3 value, NaN included, is an fp16
// value.
#pragma once

#include <cstdint>

/// Bytes 0 and 1 of `bytes`, in that order from the low half up.
__device__ __forceinline__ uint32_t unpack_e4m3_low(uint32_t bytes) {
    uint32_t halves;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low; }\n" : "=r"(halves) : "r"(bytes));
    return halves;
}

/// Bytes 2 and 3 of `bytes`.
__device__ __forceinline__ uint32_t unpack_e4m3_high(uint32_t bytes) {
    uint32_t halves;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high; }\n" : "=r"(halves) : "r"(bytes));
    return halves;
}
