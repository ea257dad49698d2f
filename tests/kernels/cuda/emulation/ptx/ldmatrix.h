// SPDX-License-Identifier: MIT
// ldmatrix as the PTX manual defines it: lane 8i + r gives row r of matrix i, lane 4g + t receives row g, columns 2t, 2t+1.
#pragma once

#include "machine.h"
#include "ptx/shared_address.h"

namespace emulation {

template <int kMatrices, bool kTransposed>
void ldmatrix(uint32_t (&d)[kMatrices], uint32_t row) {
    struct Argument {
        uint32_t* d;
        uint32_t row;
    } mine = {d, row};
    warp_wide(&mine, [](void** all) {
        for (int i = 0; i < kMatrices; ++i) {
            uint16_t matrix[8][8];
            int groups = 0;
            for (int r = 0; r < 8; ++r) {
                const uint32_t address = static_cast<Argument*>(all[8 * i + r])->row;
                std::memcpy(matrix[r], shared_at(address, 16, 16), 16);
                groups |= 1 << address / 16 % 8;
            }
            machine().bank_conflicts += groups != 0xff;
            for (int l = 0; l < 32; ++l) {
                const int g = l / 4, t = l % 4;
                const uint32_t low = kTransposed ? matrix[2 * t][g] : matrix[g][2 * t];
                const uint32_t high = kTransposed ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1];
                static_cast<Argument*>(all[l])->d[i] = low | high << 16;
            }
        }
    });
}

}  // namespace emulation

inline void ldmatrix_x4(uint32_t (&d)[4], uint32_t row) { emulation::ldmatrix<4, false>(d, row); }
inline void ldmatrix_x4_trans(uint32_t (&d)[4], uint32_t row) { emulation::ldmatrix<4, true>(d, row); }
inline void ldmatrix_x2(uint32_t (&d)[2], uint32_t row) { emulation::ldmatrix<2, false>(d, row); }
inline void ldmatrix_x2_trans(uint32_t (&d)[2], uint32_t row) { emulation::ldmatrix<2, true>(d, row); }
