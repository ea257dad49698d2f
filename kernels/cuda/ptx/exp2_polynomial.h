// SPDX-License-Identifier: MIT
// 2^x on the FP32 units, for kernels that keep the special function unit (ptx/exp2.h) busy all the time.
//
// Splits x into an integer, by adding and subtracting 1.5 * 2^23, and a rest in [-1/2, 1/2], for which a cubic with the
// least relative error stands; the integer then goes into the exponent. Eight instructions for one.
#pragma once

/// Relative error below 7.5e-5 for -126 <= x < 127; below that 2^-126 instead, hence not for masked scores. NaN gives a
/// result that is infinite, NaN or above 2^126.
struct Exp2Polynomial {
    __device__ __forceinline__ float operator()(float x) const {
        constexpr float kShifter = 12582912.0f;
        float bounded;
        asm("max.NaN.f32 %0, %1, 0fC2FC0000;\n" : "=f"(bounded) : "f"(x));   // -126
        const float shifted = bounded + kShifter;
        const float rest = bounded - (shifted - kShifter);
        const float cubic =
            fmaf(fmaf(fmaf(0.0551716689f, rest, 0.2426111222f), rest, 0.6932609855f), rest, 0.9999280735f);
        return __int_as_float(__float_as_int(cubic) + (__float_as_int(shifted) << 23));
    }
};
