// SPDX-License-Identifier: MIT
#pragma once

#include "machine.h"

inline void reduce_add_x4(float* to, float a, float b, float c, float d) {
    if (reinterpret_cast<uintptr_t>(to) % 16 != 0) emulation::fail("a misaligned addition to global memory");
    const float numbers[4] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) to[i] += numbers[i];
}
