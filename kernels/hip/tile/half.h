// SPDX-License-Identifier: MIT
// The two 16-bit formats attention comes in, as one interface: the matrix instruction and rounding from fp32.
#pragma once

#include "isa/mfma.h"
#include "tile/bf16.h"

struct Bf16 {
    static __device__ __forceinline__ f32x4 multiply(u32x2 a, u32x2 b, f32x4 c) { return mfma_16x16x16_bf16(a, b, c); }

    /// For probabilities: NaN can only come from NaN operands and then has a zero lower half, so that it survives.
    static __device__ __forceinline__ uint32_t pack_probabilities(float low, float high) {
        return pack_bf16_finite(low, high);
    }

    static __device__ __forceinline__ uint32_t pack(float low, float high) { return pack_bf16(low, high); }

    /// The upper halves as they are. Of a value whose logarithm may be anything, that takes 1 - kCut away on average.
    static __device__ __forceinline__ uint32_t cut(float low, float high) {
        return byte_perm(__builtin_bit_cast(uint32_t, low), __builtin_bit_cast(uint32_t, high), 0x07060302);
    }
    static constexpr float kCut = 0.9971902f, kCutLog2 = 0.00405939f;  // 1 / (1 + 2^-9 / ln 2), and -log2 of it

    /// The two values of a register.
    static __device__ __forceinline__ float low(uint32_t pair) { return __builtin_bit_cast(float, pair << 16); }
    static __device__ __forceinline__ float high(uint32_t pair) {
        return __builtin_bit_cast(float, pair & 0xffff0000u);
    }
};

struct Fp16 {
    static __device__ __forceinline__ f32x4 multiply(u32x2 a, u32x2 b, f32x4 c) { return mfma_16x16x16_f16(a, b, c); }

    static __device__ __forceinline__ uint32_t pack_probabilities(float low, float high) { return pack(low, high); }

    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        const uint16_t low_bits = __builtin_bit_cast(uint16_t, static_cast<_Float16>(low));
        const uint16_t high_bits = __builtin_bit_cast(uint16_t, static_cast<_Float16>(high));
        return low_bits | static_cast<uint32_t>(high_bits) << 16;
    }

    static __device__ __forceinline__ uint32_t cut(float low, float high) {
        return __builtin_bit_cast(uint32_t, __builtin_amdgcn_cvt_pkrtz(low, high));
    }
    static constexpr float kCut = 0.9996479f, kCutLog2 = 0.00050807f;

    static __device__ __forceinline__ float low(uint32_t pair) {
        return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<uint16_t>(pair)));
    }
    static __device__ __forceinline__ float high(uint32_t pair) { return low(pair >> 16); }
};
