// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>

inline int float_bits(float x) {
    int bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
inline float bits_float(int bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
