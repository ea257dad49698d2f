// SPDX-License-Identifier: MIT
// Matrix instructions of CDNA3: one per function. A wave of 64 lanes computes d = a * b + c.
//
// Operands of a 16 x 16 tile, with r = lane % 16 and g = lane / 16:
//   a: row r,    contraction indices g * W + i,  i = 0 .. W-1
//   b: column r, contraction indices g * W + i
//   c: element i is row 4 * g + i, column r
// W is 8 (fp8, 32 contraction indices) or 4 (bf16 and fp16, 16 of them). The contraction index is only a name that a
// and b share: any permutation of it that both follow gives the same sum, which the tiles use to read LDS in 16-byte
// pieces. Sources: AMD's CDNA3 ISA manual, chapter "Matrix Arithmetic Instructions".
#pragma once

#include "isa/types.h"

/// fp8 is e4m3fnuz: bias 8, no infinities, 0x80 is the NaN.
__device__ __forceinline__ f32x4 mfma_16x16x32_fp8(u32x2 a, u32x2 b, f32x4 c) {
    return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(
        __builtin_bit_cast(long, a), __builtin_bit_cast(long, b), c, 0, 0, 0);
}

__device__ __forceinline__ f32x4 mfma_16x16x16_bf16(u32x2 a, u32x2 b, f32x4 c) {
    typedef short s16x4 __attribute__((vector_size(8)));
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(
        __builtin_bit_cast(s16x4, a), __builtin_bit_cast(s16x4, b), c, 0, 0, 0);
}

__device__ __forceinline__ f32x4 mfma_16x16x16_f16(u32x2 a, u32x2 b, f32x4 c) {
    typedef _Float16 f16x4 __attribute__((vector_size(8)));
    return __builtin_amdgcn_mfma_f32_16x16x16f16(
        __builtin_bit_cast(f16x4, a), __builtin_bit_cast(f16x4, b), c, 0, 0, 0);
}
