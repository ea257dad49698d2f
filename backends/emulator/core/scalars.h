// SPDX-License-Identifier: MIT
// Short names of numbers, and their bits.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

namespace emu {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i8 = int8_t;
using i16 = int16_t;
using i32 = int32_t;
using i64 = int64_t;
using f32 = float;
using f64 = double;

inline f32 as_f32(u32 bits) { return std::bit_cast<f32>(bits); }
inline u32 as_u32(f32 value) { return std::bit_cast<u32>(value); }
inline f64 as_f64(u64 bits) { return std::bit_cast<f64>(bits); }
inline u64 as_u64(f64 value) { return std::bit_cast<u64>(value); }

/// To a multiple of `step`.
template <class T>
constexpr T round_up(T value, std::type_identity_t<T> step) {
    return (value + step - 1) / step * step;
}

}  // namespace emu
