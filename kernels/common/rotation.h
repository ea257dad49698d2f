// SPDX-License-Identifier: MIT
// RoPE's angles as bf16 gives them: frequencies and range reduction, for kernels on any vendor's GPU.
#pragma once

#include <math.h>
#include <stdint.h>

#include "fp8.h"

/// 9984^(-i/32) in bf16: RoPE's 10000 is 9984 in bf16, and so is everything that follows from it.
WARPWAVE_HOST_DEVICE inline float rope_frequency(int i) {
    constexpr uint16_t kFrequencies[32] = {0x3f80, 0x3f40, 0x3f10, 0x3ed8, 0x3ea2, 0x3e73, 0x3e36, 0x3e09,
                                           0x3dcd, 0x3d9a, 0x3d66, 0x3d2d, 0x3d02, 0x3cc2, 0x3c92, 0x3c5b,
                                           0x3c24, 0x3bf6, 0x3bb8, 0x3b8a, 0x3b4f, 0x3b1c, 0x3ae9, 0x3aaf,
                                           0x3a83, 0x3a45, 0x3a14, 0x39dd, 0x39a6, 0x3979, 0x393b, 0x390c};
    return bf16_to_float(kFrequencies[i]);
}

/// The angle of pair i at a position, every step rounded to bf16, less whole turns: within half a turn. The reduction is exact
/// but for 2^-22: the angle and the number of turns have at most 11 bits, 6.28125 has 8, the rest of a turn is small.
WARPWAVE_HOST_DEVICE inline float rope_angle(int position, int i) {
    const float at = bf16_to_float(float_to_bf16(static_cast<float>(position)));
    const float angle = bf16_to_float(float_to_bf16(at * rope_frequency(i)));
    const float turns = rintf(angle * 0.15915494f);
    return fmaf(turns, -0.0019353072f, angle - turns * 6.28125f);
}
