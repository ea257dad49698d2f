// SPDX-License-Identifier: MIT
// 2^x on the special function unit: ex2.approx.ftz.f32 (16 results per clock and SM).
#pragma once

/// Relative error about 2^-22; -inf gives 0, subnormal results become 0, NaN stays NaN.
struct Exp2 {
    __device__ __forceinline__ float operator()(float x) const {
        float result;
        asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
        return result;
    }
};
