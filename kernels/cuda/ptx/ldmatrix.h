// SPDX-License-Identifier: MIT
// Warp-wide loads of 8x8 matrices of 16-bit elements from shared memory (ldmatrix, sm_75 and later).
//
// Matrix i takes its eight row addresses (16 bytes each, 16-byte aligned) from lanes 8i .. 8i+7. With g = lane / 4 and
// t = lane % 4, a lane receives of each matrix the elements (row g, columns 2t and 2t+1); the transposed forms give it
// (rows 2t and 2t+1, column g). The lower-numbered element is in the low half of the register. Pairs of 8-bit elements
// travel as one 16-bit element. Lanes whose addresses a form does not use may pass any valid address.
#pragma once

#include <cstdint>

#include "ptx/shared_address.h"

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&d)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(row)
                 : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&d)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(row)
                 : "memory");
}

/// Lanes 0 .. 15 give the row addresses.
__device__ __forceinline__ void ldmatrix_x2(uint32_t (&d)[2], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(row)
                 : "memory");
}

/// Lanes 0 .. 15 give the row addresses.
__device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&d)[2], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
                 : "=r"(d[0]), "=r"(d[1])
                 : "r"(row)
                 : "memory");
}
