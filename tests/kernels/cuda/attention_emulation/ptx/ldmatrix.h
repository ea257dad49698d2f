// SPDX-License-Identifier: MIT
// Stands in for kernels/cuda/ptx/ldmatrix.h.
#pragma once

#include "ptx/shared_address.h"

namespace emulated {
/// Matrix i: row r at the address that lane 8i + r gives. Lane l receives of each the 16-bit elements (l / 4, 2 (l % 4))
/// and the next one; transposed, (2 (l % 4), l / 4) and the one below.
template <int kMatrices>
void load_matrices(uint32_t (&d)[kMatrices], uint32_t row, bool transposed) {
    const uint32_t* out = warp_wide(&row, 1, [=](Lane* lanes, int parity) {
        for (int i = 0; i < kMatrices; ++i) {
            uint16_t matrix[8][8];
            int bank_groups = 0;
            for (int r = 0; r < 8; ++r) {
                const uint32_t address = lanes[8 * i + r].in[0];
                memcpy(matrix[r], at_shared(address, 16), 16);
                bank_groups |= 1 << address / 16 % 8;
            }
            conflicts += bank_groups != 0xff;
            for (int l = 0; l < 32; ++l) {
                const int g = l / 4, t = l % 4 * 2;
                const uint32_t low = transposed ? matrix[t][g] : matrix[g][t];
                const uint32_t high = transposed ? matrix[t + 1][g] : matrix[g][t + 1];
                lanes[l].out[parity][i] = low | high << 16;
            }
        }
    });
    std::copy(out, out + kMatrices, d);
}
}  // namespace emulated

inline void ldmatrix_x4(uint32_t (&d)[4], uint32_t row) { emulated::load_matrices(d, row, false); }
inline void ldmatrix_x4_trans(uint32_t (&d)[4], uint32_t row) { emulated::load_matrices(d, row, true); }
inline void ldmatrix_x2(uint32_t (&d)[2], uint32_t row) { emulated::load_matrices(d, row, false); }
inline void ldmatrix_x2_trans(uint32_t (&d)[2], uint32_t row) { emulated::load_matrices(d, row, true); }
