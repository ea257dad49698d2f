// SPDX-License-Identifier: MIT
// fp32 to bf16, rounded to nearest even. CDNA3 has no instruction for it: integer arithmetic on the bit patterns.
#pragma once

#include "isa/perm.h"
#include "isa/types.h"

/// The bf16 in the upper half of the result; the lower half is garbage. Half a unit is added first, a little less when
/// the kept part is even. NaN whose lower half is all ones would wrap to zero: only `to_bf16` guards against that.
__device__ __forceinline__ uint32_t round_to_upper_half(float value) {
    const uint32_t bits = __builtin_bit_cast(uint32_t, value);
    return bits + 0x7fffu + ((bits >> 16) & 1u);
}

/// {low, high} as two bf16, low in the lower half. The values must not be NaN.
__device__ __forceinline__ uint32_t pack_bf16_finite(float low, float high) {
    return byte_perm(round_to_upper_half(low), round_to_upper_half(high), 0x07060302);
}

/// One bf16; NaN stays NaN.
__device__ __forceinline__ uint16_t to_bf16(float value) {
    return value == value ? static_cast<uint16_t>(round_to_upper_half(value) >> 16) : uint16_t{0x7fc0};
}

/// {low, high} as two bf16, low in the lower half; NaN stays NaN.
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    return to_bf16(low) | static_cast<uint32_t>(to_bf16(high)) << 16;
}
