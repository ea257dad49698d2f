// SPDX-License-Identifier: MIT
// The compiler builtins that kernels/hip/isa uses, as functions with the same names and arguments.
//
// Matrix instructions follow the operand layouts that the project's kernel notes document for CDNA3 (r = lane % 16,
// g = lane / 16; a: row r, index g * W + i; b: column r, the same indices; c: row 4 g + i, column r). A kernel that agrees
// with this file agrees with those layouts; whether the silicon does, only the silicon can say. Sums are fp32, one
// fused multiply-add after the other in ascending index.
#pragma once

#include <cmath>

#include "simt.h"

namespace simt {

typedef float Accumulator __attribute__((vector_size(16), may_alias));
typedef unsigned U32x4 __attribute__((vector_size(16), may_alias));

// ---- number formats -------------------------------------------------------------------------------------------------

/// e4m3fnuz: bias 8, no infinities, no negative zero: 0x80 is the NaN.
inline float decode_fp8(uint8_t bits) {
    if (bits == 0x80) return NAN;
    const int exponent = bits >> 3 & 15, mantissa = bits & 7;
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -10)
                                          : std::ldexp(static_cast<float>(8 + mantissa), exponent - 11);
    return bits & 0x80 ? -magnitude : magnitude;
}

struct Fp8Table {
    float value[256];
    Fp8Table() {
        for (int i = 0; i < 256; ++i) value[i] = decode_fp8(static_cast<uint8_t>(i));
    }
};

struct Fp8 {
    static constexpr int kPerLane = 8;
    static float decode(const void* from, int i) {
        static const Fp8Table table;
        return table.value[static_cast<const uint8_t*>(from)[i]];
    }
};

struct Bf16 {
    static constexpr int kPerLane = 4;
    static float decode(const void* from, int i) {
        uint16_t bits;
        std::memcpy(&bits, static_cast<const char*>(from) + 2 * i, 2);
        const uint32_t wide = static_cast<uint32_t>(bits) << 16;
        float value;
        std::memcpy(&value, &wide, 4);
        return value;
    }
};

struct Fp16 {
    static constexpr int kPerLane = 4;
    static float decode(const void* from, int i) {
        uint16_t bits;
        std::memcpy(&bits, static_cast<const char*>(from) + 2 * i, 2);
        const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
        const float magnitude = exponent == 31 ? (mantissa ? NAN : INFINITY)
                                : exponent     ? std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25)
                                               : std::ldexp(static_cast<float>(mantissa), -24);
        return bits & 0x8000 ? -magnitude : magnitude;
    }
};

// ---- matrix instructions --------------------------------------------------------------------------------------------

struct MatrixOperand {
    uint64_t a, b;
    Accumulator c;
};

template <class Format>
void multiply_16x16(MatrixOperand* (&lanes)[kWave]) {
    constexpr int kDepth = 4 * Format::kPerLane;
    float a[16][kDepth], b[16][kDepth];
    for (int lane = 0; lane < kWave; ++lane)
        for (int i = 0; i < Format::kPerLane; ++i) {
            const int k = lane / 16 * Format::kPerLane + i;
            a[lane % 16][k] = Format::decode(&lanes[lane]->a, i);
            b[lane % 16][k] = Format::decode(&lanes[lane]->b, i);
        }
    for (int lane = 0; lane < kWave; ++lane)
        for (int i = 0; i < 4; ++i) {
            const float* row = a[lane / 16 * 4 + i];
            const float* column = b[lane % 16];
            float sum = lanes[lane]->c[i];
            for (int k = 0; k < kDepth; ++k) sum = std::fma(row[k], column[k], sum);
            lanes[lane]->c[i] = sum;
        }
}

template <class Format, class Operand>
Accumulator matrix_instruction(const char* name, Operand a, Operand b, Accumulator c) {
    static_assert(sizeof(Operand) == 8, "a lane holds 64 bits of each operand");
    MatrixOperand operand;
    std::memcpy(&operand.a, &a, 8);
    std::memcpy(&operand.b, &b, 8);
    operand.c = c;
    wave_instruction(name, operand, multiply_16x16<Format>);
    return operand.c;
}

// ---- lanes ----------------------------------------------------------------------------------------------------------

struct Exchange {
    int value, argument, result;
};

inline void read_first(Exchange* (&lanes)[kWave]) {
    for (Exchange* lane : lanes) lane->result = lanes[0]->value;
}

inline void read_lane(Exchange* (&lanes)[kWave]) {
    for (Exchange* lane : lanes) {
        if (lane->argument != lanes[0]->argument) fail("readlane: the lanes disagree on which one to read");
        lane->result = lanes[lane->argument & (kWave - 1)]->value;
    }
}

/// The 32-lane mode: source = ((lane & and) | or) ^ xor inside each half of the wave.
inline void swizzle(Exchange* (&lanes)[kWave]) {
    const int pattern = lanes[0]->argument;
    const int keep = pattern & 31, set = pattern >> 5 & 31, flip = pattern >> 10 & 31;
    for (int lane = 0; lane < kWave; ++lane)
        lanes[lane]->result = lanes[(lane & 32) | (((lane & keep) | set) ^ flip)]->value;
}

inline void backward_permute(Exchange* (&lanes)[kWave]) {
    for (Exchange* lane : lanes) lane->result = lanes[lane->argument >> 2 & (kWave - 1)]->value;
}

/// Lanes hold a predicate; the two halves of the mask come back in `result` and `argument`.
inline void ballot(Exchange* (&lanes)[kWave]) {
    uint64_t mask = 0;
    for (int lane = 0; lane < kWave; ++lane) mask |= static_cast<uint64_t>(lanes[lane]->value != 0) << lane;
    for (Exchange* lane : lanes) {
        lane->result = static_cast<int>(mask & 0xffffffff);
        lane->argument = static_cast<int>(mask >> 32);
    }
}

inline int exchange(const char* name, int value, int argument, void (*compute)(Exchange* (&)[kWave])) {
    Exchange operand = {value, argument, 0};
    wave_instruction(name, operand, compute);
    return operand.result;
}

}  // namespace simt

template <class A, class B>
inline simt::Accumulator __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(A a, B b, simt::Accumulator c, int, int, int) {
    return simt::matrix_instruction<simt::Fp8>("mfma_16x16x32_fp8", a, b, c);
}

template <class A, class B>
inline simt::Accumulator __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(A a, B b, simt::Accumulator c, int, int, int) {
    return simt::matrix_instruction<simt::Bf16>("mfma_16x16x16_bf16", a, b, c);
}

template <class A, class B>
inline simt::Accumulator __builtin_amdgcn_mfma_f32_16x16x16f16(A a, B b, simt::Accumulator c, int, int, int) {
    return simt::matrix_instruction<simt::Fp16>("mfma_16x16x16_f16", a, b, c);
}

inline int __builtin_amdgcn_readfirstlane(int value) {
    return simt::exchange("readfirstlane", value, 0, simt::read_first);
}

inline int __builtin_amdgcn_readlane(int value, int lane) {
    return simt::exchange("readlane", value, lane, simt::read_lane);
}

inline uint64_t __builtin_amdgcn_ballot_w64(bool value) {
    simt::Exchange operand = {value, 0, 0};
    simt::wave_instruction("ballot", operand, simt::ballot);
    return static_cast<uint64_t>(static_cast<uint32_t>(operand.argument)) << 32 | static_cast<uint32_t>(operand.result);
}

inline int __builtin_amdgcn_ds_swizzle(int value, int pattern) {
    if (pattern & 0x8000) simt::fail("ds_swizzle: only the 32-lane mode is known here");
    return simt::exchange("ds_swizzle", value, pattern, simt::swizzle);
}

inline int __builtin_amdgcn_ds_bpermute(int address, int value) {
    return simt::exchange("ds_bpermute", value, address, simt::backward_permute);
}

/// Bytes 0-3 are those of `low`, 4-7 those of `high`; other selectors are not used.
inline unsigned __builtin_amdgcn_perm(unsigned high, unsigned low, unsigned selector) {
    const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned from = selector >> 8 * i & 0xff;
        if (from > 7) simt::fail("v_perm: selector byte above 7");
        result |= static_cast<unsigned>(bytes >> 8 * from & 0xff) << 8 * i;
    }
    return result;
}

inline float __builtin_amdgcn_exp2f(float x) { return std::exp2(x); }

inline void __builtin_amdgcn_s_setprio(int) {}
inline void __builtin_amdgcn_s_waitcnt(int) {}

// ---- buffers --------------------------------------------------------------------------------------------------------

struct __amdgpu_buffer_rsrc_t {
    char* base;
    unsigned bytes;
};

inline __amdgpu_buffer_rsrc_t __builtin_amdgcn_make_buffer_rsrc(void* base, int stride, int bytes, int flags) {
    if (stride != 0 || flags != 0x00020000) simt::fail("make_buffer_rsrc: only raw buffers are known here");
    if (bytes < 0) simt::fail("make_buffer_rsrc: negative length");
    return {static_cast<char*>(base), static_cast<unsigned>(bytes)};
}

namespace simt {

/// A dword is inside if all of it is, judged by the lane's offset alone.
template <int Bytes>
void buffer_access(const __amdgpu_buffer_rsrc_t& buffer, int offset, int scalar_offset, char* value, bool store) {
    constexpr int kPiece = Bytes < 4 ? Bytes : 4;
    if ((static_cast<unsigned>(offset) | static_cast<unsigned>(scalar_offset)) % kPiece != 0)
        fail("buffer access: offset is not aligned to the element");
    for (int i = 0; i < Bytes; i += kPiece) {
        const unsigned at = static_cast<unsigned>(offset) + static_cast<unsigned>(i);
        const bool inside = static_cast<uint64_t>(at) + kPiece <= buffer.bytes;
        char* memory = buffer.base + at + scalar_offset;
        if (store && inside) std::memcpy(memory, value + i, kPiece);
        if (!store && inside) std::memcpy(value + i, memory, kPiece);
        if (!store && !inside) std::memset(value + i, 0, kPiece);
    }
}

}  // namespace simt

inline simt::U32x4 __builtin_amdgcn_raw_buffer_load_b128(__amdgpu_buffer_rsrc_t buffer, int offset, int scalar, int) {
    simt::U32x4 value;
    simt::buffer_access<16>(buffer, offset, scalar, reinterpret_cast<char*>(&value), false);
    return value;
}

template <class Vector>
inline void __builtin_amdgcn_raw_buffer_store_b128(
    Vector value, __amdgpu_buffer_rsrc_t buffer, int offset, int scalar, int) {
    static_assert(sizeof value == 16, "b128");
    simt::buffer_access<16>(buffer, offset, scalar, reinterpret_cast<char*>(&value), true);
}

inline void __builtin_amdgcn_raw_buffer_store_b32(
    unsigned value, __amdgpu_buffer_rsrc_t buffer, int offset, int scalar, int) {
    simt::buffer_access<4>(buffer, offset, scalar, reinterpret_cast<char*>(&value), true);
}

inline void __builtin_amdgcn_raw_buffer_store_b16(
    unsigned short value, __amdgpu_buffer_rsrc_t buffer, int offset, int scalar, int) {
    simt::buffer_access<2>(buffer, offset, scalar, reinterpret_cast<char*>(&value), true);
}
