// SPDX-License-Identifier: MIT
// Stands in for kernels/cuda/ptx/mma_16bit.h: gathers the fragments into matrices by the PTX manual's figures for
// mma.m16n8k16, multiplies, and hands the rows back.
#pragma once

namespace emulated {
inline float bf16_to_float(uint32_t bits) {
    const uint32_t wide = bits << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}
inline uint32_t float_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (isnan(value)) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline float fp16_to_float(uint32_t bits) {
    _Float16 half;
    const uint16_t narrow = static_cast<uint16_t>(bits);
    memcpy(&half, &narrow, 2);
    return static_cast<float>(half);
}
inline uint32_t float_to_fp16(float value) {
    const _Float16 half = static_cast<_Float16>(value);
    uint16_t bits;
    memcpy(&bits, &half, 2);
    return bits;
}

template <typename ToFloat>
void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, ToFloat to_float) {
    uint32_t in[10] = {a[0], a[1], a[2], a[3], b0, b1};
    memcpy(in + 6, d, 16);
    const uint32_t* out = warp_wide(in, 10, [=](Lane* lanes, int parity) {
        float left[16][16], right[16][8], sum[16][8];
        for (int l = 0; l < 32; ++l) {
            const int g = l / 4, t = l % 4;
            for (int e = 0; e < 2; ++e) {
                const int shift = 16 * e;
                for (int i = 0; i < 4; ++i) {  // i odd: rows 8 on; i from 2: columns 8 on
                    left[g + 8 * (i % 2)][2 * t + e + 8 * (i / 2)] = to_float(lanes[l].in[i] >> shift & 0xffff);
                }
                for (int i = 0; i < 2; ++i) right[2 * t + e + 8 * i][g] = to_float(lanes[l].in[4 + i] >> shift & 0xffff);
            }
            for (int i = 0; i < 4; ++i) memcpy(&sum[g + 8 * (i / 2)][2 * t + i % 2], &lanes[l].in[6 + i], 4);
        }
        for (int row = 0; row < 16; ++row) {
            for (int column = 0; column < 8; ++column) {
                for (int k = 0; k < 16; ++k) sum[row][column] += left[row][k] * right[k][column];
            }
        }
        for (int l = 0; l < 32; ++l) {
            for (int i = 0; i < 4; ++i) {
                memcpy(&lanes[l].out[parity][i], &sum[l / 4 + 8 * (i / 2)][l % 4 * 2 + i % 2], 4);
            }
        }
    });
    memcpy(d, out, 16);
}
}  // namespace emulated

struct Bf16 {
    static void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        emulated::multiply(d, a, b0, b1, emulated::bf16_to_float);
    }
    static uint32_t pack(float low, float high) {
        return emulated::float_to_bf16(low) | emulated::float_to_bf16(high) << 16;
    }
};
struct Fp16 {
    static void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        emulated::multiply(d, a, b0, b1, emulated::fp16_to_float);
    }
    static uint32_t pack(float low, float high) {
        return emulated::float_to_fp16(low) | emulated::float_to_fp16(high) << 16;
    }
};
