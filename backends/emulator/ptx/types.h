// SPDX-License-Identifier: MIT
// Values of a warp: 32 lanes at once, as the compiler's own vectors.
//
// A register of up to 32 bits is 32 consecutive words, one a lane; shorter values are zero-extended. A 64-bit register is 32
// consecutive 64-bit words. A predicate is one 32-bit word, one bit a lane.
#pragma once

#include <bit>
#include <cstring>

#include "core/scalars.h"

// Vectors wider than the CPU's are passed in memory, and clang warns that this depends on the CPU. The whole library is
// compiled for one CPU, and nothing that others call takes or returns a vector.
#pragma clang diagnostic ignored "-Wpsabi"

namespace emu::ptx {

constexpr int kLanes = 32;
constexpr u32 kAllLanes = ~u32{0};

using u32v = u32 __attribute__((ext_vector_type(kLanes)));
using i32v = i32 __attribute__((ext_vector_type(kLanes)));
using f32v = f32 __attribute__((ext_vector_type(kLanes)));
using u64v = u64 __attribute__((ext_vector_type(kLanes)));
using i64v = i64 __attribute__((ext_vector_type(kLanes)));
using f64v = f64 __attribute__((ext_vector_type(kLanes)));
using boolv = bool __attribute__((ext_vector_type(kLanes)));

/// Elements of another type, by value.
template <class To, class From>
To convert(From value) {
    return __builtin_convertvector(value, To);
}

/// The same bits as another vector type.
template <class To, class From>
To bits(From value) {
    return __builtin_bit_cast(To, value);
}

/// A comparison's result (all ones or zero in an element) as one bit a lane.
inline u32 to_mask(i32v truth) { return __builtin_bit_cast(u32, __builtin_convertvector(truth, boolv)); }
inline u32 to_mask(i64v truth) { return __builtin_bit_cast(u32, __builtin_convertvector(truth, boolv)); }

/// One bit a lane as all ones or zero.
inline i32v to_lanes(u32 mask) { return -convert<i32v>(__builtin_bit_cast(boolv, mask)); }

template <class V>
V choose(i32v condition, V yes, V no) {
    if constexpr (sizeof(V) == sizeof(i32v)) {
        return bits<V>((condition & bits<i32v>(yes)) | (~condition & bits<i32v>(no)));
    } else {
        const i64v wide = convert<i64v>(condition);
        return bits<V>((wide & bits<i64v>(yes)) | (~wide & bits<i64v>(no)));
    }
}

/// The lanes of a mask, lowest first.
template <class Function>
void each_lane(u32 mask, Function function) {
    for (; mask; mask &= mask - 1) function(std::countr_zero(mask));
}

}  // namespace emu::ptx
