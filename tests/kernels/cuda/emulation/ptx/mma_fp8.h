// SPDX-License-Identifier: MIT
// mma.m16n8k32 of e4m3, as the PTX manual lays its fragments out; sums in double, rounded once.
#pragma once

#include "machine.h"
#include "ptx/number_formats.h"

inline void mma_m16n8k32_e4m3(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    struct Argument {
        float* d;
        const uint32_t *a, *b;
    } mine = {d, a, b};
    emulation::warp_wide(&mine, [](void** all) {
        float A[16][32], B[32][8];
        for (int l = 0; l < 32; ++l) {
            const auto& lane = *static_cast<Argument*>(all[l]);
            const int g = l / 4, t = l % 4;
            for (int i = 0; i < 4; ++i)
                for (int byte = 0; byte < 4; ++byte) {
                    A[g + i % 2 * 8][i / 2 * 16 + 4 * t + byte] = emulation::e4m3(lane.a[i] >> 8 * byte & 255);
                    if (i < 2) B[i * 16 + 4 * t + byte][g] = emulation::e4m3(lane.b[i] >> 8 * byte & 255);
                }
        }
        for (int l = 0; l < 32; ++l)
            for (int i = 0; i < 4; ++i) {
                const int row = l / 4 + i / 2 * 8, column = l % 4 * 2 + i % 2;
                double sum = static_cast<Argument*>(all[l])->d[i];
                for (int k = 0; k < 32; ++k) sum += static_cast<double>(A[row][k]) * B[k][column];
                static_cast<Argument*>(all[l])->d[i] = static_cast<float>(sum);
            }
    });
}
