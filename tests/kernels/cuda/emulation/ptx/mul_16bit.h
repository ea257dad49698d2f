// SPDX-License-Identifier: MIT
#pragma once

#include "ptx/number_formats.h"

inline uint32_t multiply_halves(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int i = 0; i < 32; i += 16) {
        const float x = emulation::half(static_cast<uint16_t>(a >> i)), y = emulation::half(static_cast<uint16_t>(b >> i));
        product |= static_cast<uint32_t>(emulation::to_half(x * y)) << i;
    }
    return product;
}
inline uint32_t multiply_bfloats(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int i = 0; i < 32; i += 16) {
        const float x = emulation::bfloat(static_cast<uint16_t>(a >> i)), y = emulation::bfloat(static_cast<uint16_t>(b >> i));
        product |= static_cast<uint32_t>(emulation::to_bfloat(x * y)) << i;
    }
    return product;
}
