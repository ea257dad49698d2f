// SPDX-License-Identifier: MIT
// The number formats of tensor core operands, decoded and rounded in plain C++.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace emulation {

/// 2^exponent, of a normal number.
constexpr float power_of_two(int exponent) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(exponent + 127) << 23);
}

inline float e4m3(uint8_t code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    if ((code & 0x7f) == 0x7f) return NAN;
    const float magnitude = exponent ? (8 + mantissa) * power_of_two(exponent - 10) : mantissa * power_of_two(-9);
    return code & 0x80 ? -magnitude : magnitude;
}

inline float half(uint16_t code) {
    const int exponent = code >> 10 & 31, mantissa = code & 1023;
    float magnitude = exponent ? (1024 + mantissa) * power_of_two(exponent - 25) : mantissa * power_of_two(-24);
    if (exponent == 31) magnitude = mantissa ? NAN : INFINITY;
    return code & 0x8000 ? -magnitude : magnitude;
}

inline float bfloat(uint16_t code) {
    const uint32_t bits = static_cast<uint32_t>(code) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

/// Nearest even; what exceeds 448 becomes 448, NaN stays NaN.
inline uint8_t to_e4m3(float value) {
    if (std::isnan(value)) return 0x7f;
    const uint8_t sign = std::signbit(value) ? 0x80 : 0;
    const float magnitude = std::fabs(value);
    if (magnitude >= 448.0f) return sign | 0x7e;
    if (magnitude == 0) return sign;
    int exponent;
    std::frexp(magnitude, &exponent);                    // magnitude < 2^exponent
    const int unit = exponent < -5 ? -9 : exponent - 4;  // of the last place; subnormals share one
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -unit)));
    return sign | static_cast<uint8_t>(unit == -9 ? steps : ((unit + 9) << 3) + steps);
}

/// e4m3 as fp16, which holds all of it.
inline uint16_t e4m3_as_half(uint8_t code) {
    const uint16_t sign = static_cast<uint16_t>(code & 0x80) << 8;
    if ((code & 0x7f) == 0x7f) return sign | 0x7e00;
    const float magnitude = e4m3(code & 0x7f);
    if (magnitude == 0) return sign;
    int exponent;
    const float fraction = std::frexp(magnitude, &exponent);  // magnitude = fraction * 2^exponent, 0.5 <= fraction < 1
    return sign | static_cast<uint16_t>((exponent + 14) << 10 | static_cast<int>((fraction * 2 - 1) * 1024));
}

/// Nearest even; NaN stays NaN.
inline uint16_t to_bfloat(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (std::isnan(value)) return 0x7fff;
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// Nearest even; overflow gives infinity, NaN stays NaN.
inline uint16_t to_half(float value) {
    if (std::isnan(value)) return 0x7fff;
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const float magnitude = std::fabs(value);
    if (magnitude >= 65520.0f) return sign | 0x7c00;
    if (magnitude == 0) return sign;
    int exponent;
    std::frexp(magnitude, &exponent);                       // magnitude < 2^exponent
    const int unit = exponent < -13 ? -24 : exponent - 11;  // of the last place; subnormals share one
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -unit)));
    return sign | static_cast<uint16_t>(unit == -24 ? steps : ((unit + 24) << 10) + steps);
}

}  // namespace emulation
