// SPDX-License-Identifier: MIT
// Conversions between fp32 and packed fp8, which on CDNA3 is e4m3fnuz: rounded to nearest even, NaN stays NaN.
#pragma once

#include "isa/types.h"

/// Four values, none beyond +-240, as four codes, `a` in the lowest byte.
__device__ __forceinline__ uint32_t pack_fp8(float a, float b, float c, float d) {
    const int low = __builtin_amdgcn_cvt_pk_fp8_f32(a, b, 0, false);
    return static_cast<uint32_t>(__builtin_amdgcn_cvt_pk_fp8_f32(c, d, low, true));
}

/// The values of four codes, the lowest byte's first.
__device__ __forceinline__ f32x4 unpack_fp8(uint32_t codes) {
    const auto low = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(codes), false);
    const auto high = __builtin_amdgcn_cvt_pk_f32_fp8(static_cast<int>(codes), true);
    return f32x4{low[0], low[1], high[0], high[1]};
}
