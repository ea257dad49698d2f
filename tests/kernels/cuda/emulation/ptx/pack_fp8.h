// SPDX-License-Identifier: MIT
#pragma once

#include "ptx/number_formats.h"

inline uint32_t pack_e4m3(float a, float b, float c, float d) {
    using emulation::to_e4m3;
    return to_e4m3(a) | to_e4m3(b) << 8 | to_e4m3(c) << 16 | static_cast<uint32_t>(to_e4m3(d)) << 24;
}
