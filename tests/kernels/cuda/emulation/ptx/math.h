// SPDX-License-Identifier: MIT
// Arithmetic in one instruction: powers of two, logarithms and reciprocals of the special function unit, pairs of 16-bit
// products.
#pragma once

#include <cmath>

#include "ptx/number_formats.h"

struct Exp2 {
    float operator()(float x) const {
        const float result = std::exp2(x);
        return std::fabs(result) < 0x1p-126f ? 0.0f : result;
    }
};

inline float reciprocal_approximate(float x) { return 1.0f / x; }
inline float log2_approximate(float x) { return std::log2(x); }

inline uint32_t multiply_halves(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int i = 0; i < 32; i += 16) {
        const float x = emulation::half(static_cast<uint16_t>(a >> i)),
                    y = emulation::half(static_cast<uint16_t>(b >> i));
        product |= static_cast<uint32_t>(emulation::to_half(x * y)) << i;
    }
    return product;
}
inline uint32_t multiply_bfloats(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int i = 0; i < 32; i += 16) {
        const float x = emulation::bfloat(static_cast<uint16_t>(a >> i)),
                    y = emulation::bfloat(static_cast<uint16_t>(b >> i));
        product |= static_cast<uint32_t>(emulation::to_bfloat(x * y)) << i;
    }
    return product;
}
