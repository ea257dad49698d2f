// SPDX-License-Identifier: MIT
// Values of a wave: 64 lanes at once, as the compiler's own vectors, and how they convert.
//
// A register of the vector file is 64 consecutive 32-bit words, one a lane; a 64-bit operand is two registers in a row,
// low words first. Vectors of 64 elements are split by the compiler into whatever the CPU has.
#pragma once

#include <bit>
#include <cstring>

#include "core/scalars.h"

// Vectors wider than the CPU's are passed in memory, and clang warns that this depends on the CPU. All of the library is
// compiled for one CPU, and nothing of it that others call takes or returns a vector.
#pragma clang diagnostic ignored "-Wpsabi"

namespace emu {

constexpr int kLanes = 64;
constexpr u64 kAllLanes = ~u64{0};

using u32v = u32 __attribute__((ext_vector_type(kLanes)));
using i32v = i32 __attribute__((ext_vector_type(kLanes)));
using f32v = f32 __attribute__((ext_vector_type(kLanes)));
using u64v = u64 __attribute__((ext_vector_type(kLanes)));
using i64v = i64 __attribute__((ext_vector_type(kLanes)));
using f64v = f64 __attribute__((ext_vector_type(kLanes)));
using u16v = u16 __attribute__((ext_vector_type(kLanes)));
using i16v = i16 __attribute__((ext_vector_type(kLanes)));

/// A register's 64 words, which are always aligned to a cache line, as vector `V` of 32-bit elements.
template <class V>
inline V load(const u32* words) {
    static_assert(sizeof(V) == 4 * kLanes);
    return *static_cast<const V*>(__builtin_assume_aligned(words, 64));
}

template <class V>
inline void store(u32* words, V value) {
    static_assert(sizeof(V) == 4 * kLanes);
    *static_cast<V*>(__builtin_assume_aligned(words, 64)) = value;
}

/// 64-bit elements from a register pair.
inline u64v load64(const u32* words) {
    return __builtin_convertvector(load<u32v>(words), u64v) |
           (__builtin_convertvector(load<u32v>(words + kLanes), u64v) << 32);
}

inline void store64(u32* words, u64v value) {
    store(words, __builtin_convertvector(value, u32v));
    store(words + kLanes, __builtin_convertvector(value >> 32, u32v));
}

/// One lane of a pair.
inline u64 lane64(const u32* words, int lane) { return words[lane] | u64{words[kLanes + lane]} << 32; }

inline void set_lane64(u32* words, int lane, u64 value) {
    words[lane] = static_cast<u32>(value);
    words[kLanes + lane] = static_cast<u32>(value >> 32);
}

/// One bit a lane, as a vector: lane 0 is the lowest bit. Conversions through it are a few instructions; loops are not.
using boolv = bool __attribute__((ext_vector_type(kLanes)));

/// Comparison results (all ones or zero in an element) to one bit a lane.
inline u64 to_mask(i32v truth) { return __builtin_bit_cast(u64, __builtin_convertvector(truth, boolv)); }
inline u64 to_mask(i64v truth) { return __builtin_bit_cast(u64, __builtin_convertvector(truth, boolv)); }

/// One bit a lane to all ones or zero.
inline i32v to_lanes(u64 mask) { return -__builtin_convertvector(__builtin_bit_cast(boolv, mask), i32v); }

inline void spread(u64 mask, u32* words) { store(words, to_lanes(mask)); }

inline i64 sign_extend(u64 value, int bits) {
    const int shift = 64 - bits;
    return static_cast<i64>(value << shift) >> shift;
}

}  // namespace emu
