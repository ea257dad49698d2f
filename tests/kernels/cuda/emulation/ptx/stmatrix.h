// SPDX-License-Identifier: MIT
// stmatrix as the PTX manual defines it: lane 8i + r gives the address of row r of matrix i.
#pragma once

#include "machine.h"

namespace emulation {

template <bool kTransposed>
void stmatrix(uint32_t row, const uint32_t (&d)[4]) {
    struct Argument {
        uint32_t row;
        const uint32_t* d;
    } mine = {row, d};
    warp_wide(&mine, [](void** all) {
        for (int i = 0; i < 4; ++i) {
            int groups = 0;
            for (int r = 0; r < 8; ++r) {
                const uint32_t address = static_cast<Argument*>(all[8 * i + r])->row;
                uint8_t* to = shared_at(address, 16, 16);
                groups |= 1 << address / 16 % 8;
                for (int c = 0; c < 8; ++c) {   // of a matrix whose row g lanes 4g .. 4g + 3 hold
                    const int g = kTransposed ? c : r, t = kTransposed ? r : c;
                    const uint32_t pair = static_cast<Argument*>(all[4 * g + t / 2])->d[i];
                    const uint16_t element = static_cast<uint16_t>(pair >> 16 * (t % 2));
                    std::memcpy(to + 2 * c, &element, 2);
                }
            }
            machine().bank_conflicts += groups != 0xff;
        }
    });
}

}  // namespace emulation

inline void stmatrix_x4(uint32_t row, const uint32_t (&d)[4]) { emulation::stmatrix<false>(row, d); }
inline void stmatrix_x4_trans(uint32_t row, const uint32_t (&d)[4]) { emulation::stmatrix<true>(row, d); }
