// SPDX-License-Identifier: MIT
// Conversions between number formats, and the byte moves they need: e4m3, bf16, fp16, fp32.
#pragma once

#include <cstdint>
#include <cstring>

#include "machine.h"
#include "ptx/mma.h"
#include "ptx/number_formats.h"

inline uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) result |= static_cast<uint32_t>(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}

template <uint32_t kSelector>
uint32_t permute_bytes(uint32_t low, uint32_t high) {
    return permute_bytes(low, high, kSelector);
}

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

template <class Element>
float2 unpack_pair(uint32_t pair);
template <>
inline float2 unpack_pair<Bf16>(uint32_t pair) {
    return {emulation::bfloat(static_cast<uint16_t>(pair)), emulation::bfloat(static_cast<uint16_t>(pair >> 16))};
}
template <>
inline float2 unpack_pair<Fp16>(uint32_t pair) {
    return {emulation::half(static_cast<uint16_t>(pair)), emulation::half(static_cast<uint16_t>(pair >> 16))};
}

inline uint32_t unpack_e4m3_low(uint32_t bytes) {
    return emulation::e4m3_as_half(bytes & 255) | static_cast<uint32_t>(emulation::e4m3_as_half(bytes >> 8 & 255))
                                                      << 16;
}
inline uint32_t unpack_e4m3_high(uint32_t bytes) { return unpack_e4m3_low(bytes >> 16); }

inline uint32_t pack_e4m3(float a, float b, float c, float d) {
    using emulation::to_e4m3;
    return to_e4m3(a) | to_e4m3(b) << 8 | to_e4m3(c) << 16 | static_cast<uint32_t>(to_e4m3(d)) << 24;
}
