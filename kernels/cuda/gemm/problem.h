// SPDX-License-Identifier: MIT
// A block-scaled FP8 product as all CUDA kernels take it.
//
//   c[i, j] = sum over K blocks t of 128:  a_scale[i, t] * b_scale[j / 128, t] * sum_{k in t} a[i, k] * b[j, k]
#pragma once

#include <cstdint>

namespace gemm {

/// Scales are fp32; c is bf16, row-major.
struct BlockScaledGemm {
    const uint8_t* a;
    const uint8_t* b;
    const float* a_scale;  // [m, k / 128], strides (1, m)
    const float* b_scale;  // [ceil(n / 128), k / 128], strides (b_scale_row, b_scale_k)
    uint16_t* c;
    float* planes;  // workspace: [splits][m][plane_pitch(n)] fp32, where partial sums go through memory
    int m, n, k;
    int b_scale_row, b_scale_k;
};

/// Index of a tile shape in the launcher's table, and the number of parts K is divided into.
struct Plan {
    int shape;
    int splits;
};

}  // namespace gemm
