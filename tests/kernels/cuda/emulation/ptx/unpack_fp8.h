// SPDX-License-Identifier: MIT
#pragma once

#include "ptx/number_formats.h"

inline uint32_t unpack_e4m3_low(uint32_t bytes) {
    return emulation::e4m3_as_half(bytes & 255) | static_cast<uint32_t>(emulation::e4m3_as_half(bytes >> 8 & 255)) << 16;
}
inline uint32_t unpack_e4m3_high(uint32_t bytes) { return unpack_e4m3_low(bytes >> 16); }
