// SPDX-License-Identifier: MIT
// The block-scaled fp8 product in plain loops, for operands of any strides.
#pragma once

#include <cstdint>
#include <vector>

#include "ceil_div.h"
#include "fp8.h"
#include "tile/axpy.h"

/// An fp8 matrix with 128-column blocks of scales: element (row, column) and scale (row block, column / 128).
struct ScaledOperand {
    const uint8_t* codes;
    long row_step, column_step;
    const float* scales;
    long scale_row_step, scale_column_step;
};

/// c[m, n] bf16 row-major = a · bᵀ; a has a scale per row, b one per 128 rows. k is a multiple of 128.
///
/// For each 128 columns of c and each 128 columns of K the tile of b is unpacked once, K outermost; every row of a then
/// adds 128 rank-one rows to an fp32 partial sum, which is scaled and added to the fp32 result of that row.
inline void block_scaled_gemm(const ScaledOperand& a, const ScaledOperand& b, uint16_t* c, int m, int n, int k) {
    constexpr int BLOCK = 128;
    float value[256];
    for (int code = 0; code < 256; ++code) value[code] = fp8_to_float(static_cast<uint8_t>(code));

    std::vector<float> tile(BLOCK * BLOCK), result(static_cast<size_t>(m) * BLOCK);
    for (int j0 = 0; j0 < n; j0 += BLOCK) {
        const int columns = n - j0 < BLOCK ? n - j0 : BLOCK;
        result.assign(result.size(), 0.0f);
        for (int t = 0; t < k / BLOCK; ++t) {
            tile.assign(tile.size(), 0.0f);
            for (int j = 0; j < columns; ++j)
                for (int kk = 0; kk < BLOCK; ++kk)
                    tile[kk * BLOCK + j] = value[b.codes[(j0 + j) * b.row_step + (t * BLOCK + kk) * b.column_step]];
            const float b_scale = b.scales[j0 / BLOCK * b.scale_row_step + t * b.scale_column_step];
            for (int i = 0; i < m; ++i) {
                float partial[BLOCK] = {};
                const uint8_t* codes = a.codes + i * a.row_step + t * BLOCK * a.column_step;
                for (int kk = 0; kk < BLOCK; ++kk)
                    axpy<BLOCK>(partial, value[codes[kk * a.column_step]], &tile[kk * BLOCK]);
                const float scale = a.scales[i * a.scale_row_step + t * a.scale_column_step] * b_scale;
                axpy<BLOCK>(&result[static_cast<size_t>(i) * BLOCK], scale, partial);
            }
        }
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < columns; ++j)
                c[static_cast<long>(i) * n + j0 + j] = float_to_bf16(result[static_cast<size_t>(i) * BLOCK + j]);
    }
}
