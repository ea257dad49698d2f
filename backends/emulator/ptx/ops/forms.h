// SPDX-License-Identifier: MIT
// Types of PTX as the handlers see them, and handlers made of a function of lanes' values.
#pragma once

#include <string_view>

#include "../builder.h"

namespace emu::ptx {

/// A type: `V` is what handlers compute with, `get` and `put` bring it from and to a register of `kBytes`.
template <class Vector, u32 Bytes>
struct Plain {
    using V = Vector;
    static constexpr u32 kBytes = Bytes;
    static V get(const Warp& w, i32 offset) { return w.get<V>(offset); }
    static void put(const Warp& w, i32 offset, V value) { w.put<V>(offset, value); }
};

struct U32 : Plain<u32v, 4> {};
struct S32 : Plain<i32v, 4> {};
struct U64 : Plain<u64v, 8> {};
struct S64 : Plain<i64v, 8> {};
struct F64 : Plain<f64v, 8> {};

// NaN results are 7fffffff on the hardware, whatever went in (recorded on an H200).
// Asked of the bits: compilers fold a comparison of a square root with itself.
inline f32v canonical(f32v value) {
    const i32v nan = bits<i32v>((bits<u32v>(value) & 0x7fffffffu) > 0x7f800000u);
    return choose<f32v>(nan, bits<f32v>(u32v(0x7fffffffu)), value);
}
/// Subnormals become zeros of their sign.
inline f32v flushed(f32v value) {
    const u32v word = bits<u32v>(value);
    return choose<f32v>(bits<i32v>((word & 0x7f800000u) == 0), bits<f32v>(word & 0x80000000u), value);
}

struct F32 : Plain<f32v, 4> {};
struct F32Ftz {
    using V = f32v;
    static constexpr u32 kBytes = 4;
    static V get(const Warp& w, i32 offset) { return flushed(w.get<V>(offset)); }
    static void put(const Warp& w, i32 offset, V value) { w.put<V>(offset, flushed(value)); }
};

struct U16 {
    using V = u32v;
    static constexpr u32 kBytes = 4;
    static V get(const Warp& w, i32 offset) { return w.get<u32v>(offset) & 0xffffu; }
    static void put(const Warp& w, i32 offset, V value) { w.put<u32v>(offset, value & 0xffffu); }
};
struct S16 {
    using V = i32v;
    static constexpr u32 kBytes = 4;
    static V get(const Warp& w, i32 offset) { return bits<i32v>(w.get<u32v>(offset) << 16) >> 16; }
    static void put(const Warp& w, i32 offset, V value) { w.put<u32v>(offset, bits<u32v>(value) & 0xffffu); }
};

template <class T, auto F>
Flow unary(Warp& w, const Op& op) {
    T::put(w, op.operand[0], F(T::get(w, op.operand[1])));
    return Flow::Next;
}

template <class T, auto F>
Flow binary(Warp& w, const Op& op) {
    T::put(w, op.operand[0], F(T::get(w, op.operand[1]), T::get(w, op.operand[2])));
    return Flow::Next;
}

template <class T, auto F>
Flow ternary(Warp& w, const Op& op) {
    T::put(w, op.operand[0], F(T::get(w, op.operand[1]), T::get(w, op.operand[2]), T::get(w, op.operand[3])));
    return Flow::Next;
}

/// Sets result and `count` sources, all of `bytes`, and the handler. For decoders' returns.
inline bool set(Builder& b, Handler handler, u32 bytes, size_t count) {
    if (b.operands() != count + 1) return false;  // a form with more operands is another instruction
    b.op.run = handler;
    b.op.operand[0] = b.target(0, bytes);
    for (size_t i = 1; i <= count; ++i) b.op.operand[i] = b.offset(i, bytes);
    return true;
}

/// Function objects by the integer type's name; `Make<T>` has a static `handler()`. Null for a type that is none.
template <template <class> class Make>
Handler integer_handler(std::string_view type) {
    if (type == "u32" || type == "b32") return Make<U32>::handler();
    if (type == "s32") return Make<S32>::handler();
    if (type == "u64" || type == "b64") return Make<U64>::handler();
    if (type == "s64") return Make<S64>::handler();
    if (type == "u16" || type == "b16") return Make<U16>::handler();
    if (type == "s16") return Make<S16>::handler();
    return nullptr;
}

inline u32 integer_bytes(std::string_view type) { return type.ends_with("64") ? 8 : 4; }

}  // namespace emu::ptx
