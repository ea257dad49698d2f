// SPDX-License-Identifier: MIT
// Warp-wide tensor core products (mma.sync): 16-bit elements on sm_80 and later, FP8 on sm_89.
#pragma once

#include "machine.h"
#include "ptx/number_formats.h"

// mma.m16n8k16 of bf16 and fp16, as the PTX manual lays its fragments out; sums in double, rounded once.

namespace emulation {

template <float (*kDecode)(uint16_t)>
void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    struct Argument {
        float* d;
        const uint32_t* a;
        uint32_t b[2];
    } mine = {d, a, {b0, b1}};
    warp_wide(&mine, [](void** all) {
        float A[16][16], B[16][8];
        for (int l = 0; l < 32; ++l) {
            const auto& lane = *static_cast<Argument*>(all[l]);
            const int g = l / 4, t = l % 4;
            for (int i = 0; i < 4; ++i)
                for (int e = 0; e < 2; ++e) {
                    A[g + i % 2 * 8][i / 2 * 8 + 2 * t + e] = kDecode(static_cast<uint16_t>(lane.a[i] >> 16 * e));
                    if (i < 2) B[i * 8 + 2 * t + e][g] = kDecode(static_cast<uint16_t>(lane.b[i] >> 16 * e));
                }
        }
        for (int l = 0; l < 32; ++l)
            for (int i = 0; i < 4; ++i) {
                const int row = l / 4 + i / 2 * 8, column = l % 4 * 2 + i % 2;
                double sum = static_cast<Argument*>(all[l])->d[i];
                for (int k = 0; k < 16; ++k) sum += static_cast<double>(A[row][k]) * B[k][column];
                static_cast<Argument*>(all[l])->d[i] = static_cast<float>(sum);
            }
    });
}

}  // namespace emulation

struct Bf16 {
    static void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        emulation::mma_m16n8k16<emulation::bfloat>(d, a, b0, b1);
    }
    static uint32_t pack(float low, float high) {
        return emulation::to_bfloat(low) | static_cast<uint32_t>(emulation::to_bfloat(high)) << 16;
    }
};

struct Fp16 {
    static void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        emulation::mma_m16n8k16<emulation::half>(d, a, b0, b1);
    }
    static uint32_t pack(float low, float high) {
        return emulation::to_half(low) | static_cast<uint32_t>(emulation::to_half(high)) << 16;
    }
};

// mma.m16n8k32 of e4m3, as the PTX manual lays its fragments out; sums in double, rounded once.

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
