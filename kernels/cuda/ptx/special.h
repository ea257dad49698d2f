// SPDX-License-Identifier: MIT
// The special function unit beside ptx/exp2.h: one instruction each, without the branches of the exact functions.
#pragma once

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
