// SPDX-License-Identifier: MIT
// stmatrix as the PTX manual defines it: lane 8i + r gives the address of row r of matrix i.
#pragma once

#include "machine.h"

inline void stmatrix_x4(uint32_t row, const uint32_t (&d)[4]) {
    struct Argument {
        uint32_t row;
        const uint32_t* d;
    } mine = {row, d};
    emulation::warp_wide(&mine, [](void** all) {
        for (int i = 0; i < 4; ++i) {
            int groups = 0;
            for (int r = 0; r < 8; ++r) {
                const uint32_t address = static_cast<Argument*>(all[8 * i + r])->row;
                uint8_t* to = emulation::shared_at(address, 16, 16);
                groups |= 1 << address / 16 % 8;
                for (int t = 0; t < 4; ++t) std::memcpy(to + 4 * t, static_cast<Argument*>(all[4 * r + t])->d + i, 4);
            }
            emulation::machine().bank_conflicts += groups != 0xff;
        }
    });
}

inline void stmatrix_x4_trans(uint32_t row, const uint32_t (&d)[4]) {
    struct Argument {
        uint32_t row;
        const uint32_t* d;
    } mine = {row, d};
    emulation::warp_wide(&mine, [](void** all) {
        for (int i = 0; i < 4; ++i) {
            int groups = 0;
            for (int r = 0; r < 8; ++r) {
                const uint32_t address = static_cast<Argument*>(all[8 * i + r])->row;
                uint8_t* to = emulation::shared_at(address, 16, 16);
                groups |= 1 << address / 16 % 8;
                for (int g = 0; g < 8; ++g) {   // lane 4g + r / 2 holds rows 2 (r / 2) and the next of column g
                    const uint32_t pair = static_cast<Argument*>(all[4 * g + r / 2])->d[i];
                    const uint16_t element = static_cast<uint16_t>(pair >> 16 * (r % 2));
                    std::memcpy(to + 2 * g, &element, 2);
                }
            }
            emulation::machine().bank_conflicts += groups != 0xff;
        }
    });
}
