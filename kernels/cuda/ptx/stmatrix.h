// SPDX-License-Identifier: MIT
// Warp-wide stores of 8x8 matrices of 16-bit elements to shared memory (stmatrix, sm_90): ldmatrix backwards.
//
// Matrix i takes its eight row addresses (16 bytes each, 16-byte aligned) from lanes 8i .. 8i+7. With g = lane / 4 and
// t = lane % 4, a lane gives of each matrix the elements (row g, columns 2t and 2t+1), the lower-numbered in the low half.
#pragma once

#include <cstdint>

__device__ __forceinline__ void stmatrix_x4(uint32_t row, const uint32_t (&d)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(row), "r"(d[0]), "r"(d[1]),
                 "r"(d[2]), "r"(d[3])
                 : "memory");
}

/// Stores each matrix transposed: a lane gives (rows 2t and 2t+1, column g) of what the addressed rows become.
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t row, const uint32_t (&d)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(row), "r"(d[0]),
                 "r"(d[1]), "r"(d[2]), "r"(d[3])
                 : "memory");
}
