// SPDX-License-Identifier: MIT
// fp32 to e4m3, four at a time: nearest even, what exceeds 448 becomes 448 (cvt.rn.satfinite.e4m3x2.f32, sm_89 and later).
#pragma once

#include <cstdint>

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
