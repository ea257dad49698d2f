// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
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
inline float add_exponent(float x, float shifted) {
    return bits_float(static_cast<int>(static_cast<uint32_t>(float_bits(x)) + (static_cast<uint32_t>(float_bits(shifted)) << 23)));
}
