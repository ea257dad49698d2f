// SPDX-License-Identifier: MIT
// Scalar atomics. With glc (which takes the place of the vector instructions' sc0) the old value replaces the data.
//
// Semantics: "AMD Instinct MI300 Instruction Set Architecture Reference Guide", chapter "Scalar Memory Operations".
#include "smem.h"

#include "../table.h"

namespace emu {
namespace {

template <class T>
T data(const Wave& w, const Op& op, u32 dword = 0) {
    T value;
    std::memcpy(&value, &w.sgpr[op.vdata.index + dword], sizeof value);
    return value;
}

// Replaces what is at `address` by F(old, data, comparand).
template <class T, auto F>
void exchange(Wave& w, const Op& op, u64 address) {
    if (address % sizeof(T)) fault(w, op, "atomic at an address that is no multiple of its size");
    T old = 0;
    if (touch_scalar(w, op, address, sizeof(T), AccessKind::Atomic)) {
        auto* place = reinterpret_cast<T*>(address);
        const T operand = data<T>(w, op);
        old = __atomic_load_n(place, __ATOMIC_RELAXED);
        T next;
        do next = F(old, operand, w, op);
        while (!__atomic_compare_exchange_n(place, &old, next, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
    }
    if (op.inst.sc0) std::memcpy(&w.sgpr[op.vdata.index], &old, sizeof old);
}

template <class T, auto F>
void s_atomic(Wave& w, const Op& op) {
    exchange<T, F>(w, op, scalar_address(w, op));
}

// Beyond the buffer's end nothing is changed, and zero returned.
template <class T, auto F>
void s_buffer_atomic(Wave& w, const Op& op) {
    if (const u64 address = scalar_buffer_address(w, op, sizeof(T))) return exchange<T, F>(w, op, address);
    if (op.inst.sc0) std::memset(&w.sgpr[op.vdata.index], 0, sizeof(T));
}

template <class T>
using Signed = std::make_signed_t<T>;

constexpr auto kSwap = [](auto, auto data, auto&, auto&) { return data; };
constexpr auto kAdd = [](auto old, auto data, auto&, auto&) { return old + data; };
constexpr auto kSub = [](auto old, auto data, auto&, auto&) { return old - data; };
constexpr auto kSmin = [](auto old, auto data, auto&, auto&) {
    using S = Signed<decltype(old)>;
    return static_cast<S>(data) < static_cast<S>(old) ? data : old;
};
constexpr auto kUmin = [](auto old, auto data, auto&, auto&) { return data < old ? data : old; };
constexpr auto kSmax = [](auto old, auto data, auto&, auto&) {
    using S = Signed<decltype(old)>;
    return static_cast<S>(data) >= static_cast<S>(old) ? data : old;
};
constexpr auto kUmax = [](auto old, auto data, auto&, auto&) { return data >= old ? data : old; };
constexpr auto kAnd = [](auto old, auto data, auto&, auto&) { return old & data; };
constexpr auto kOr = [](auto old, auto data, auto&, auto&) { return old | data; };
constexpr auto kXor = [](auto old, auto data, auto&, auto&) { return old ^ data; };
constexpr auto kInc = [](auto old, auto data, auto&, auto&) {
    return old >= data ? decltype(old){0} : static_cast<decltype(old)>(old + 1);
};
constexpr auto kDec = [](auto old, auto data, auto&, auto&) {
    return old == 0 || old > data ? data : static_cast<decltype(old)>(old - 1);
};
// The comparand stands after the new value.
constexpr auto kCmpswap = [](auto old, auto data_, auto& w, auto& op) {
    using T = decltype(old);
    return old == data<T>(w, op, sizeof(T) / 4) ? data_ : old;
};

#define EMU_SCALAR_ATOMIC(suffix, place, operation, one, two)                                                        \
    {"s_buffer_atomic_" suffix, Format::Smem, 64 + place, one, nullptr, s_buffer_atomic<u32, operation>, kFlags, 0}, \
        {"s_buffer_atomic_" suffix "_x2", Format::Smem, 96 + place, two, nullptr,                                    \
         s_buffer_atomic<u64, operation>, kFlags,       0},                                                          \
        {"s_atomic_" suffix, Format::Smem, 128 + place, one, nullptr, s_atomic<u32, operation>, kFlags, 0},          \
        {"s_atomic_" suffix "_x2", Format::Smem, 160 + place, two, nullptr, s_atomic<u64, operation>, kFlags, 0}

constexpr u32 kFlags = kAtomic | kReturns;
constexpr Row kRows[] = {
    EMU_SCALAR_ATOMIC("swap", 0, kSwap, "b32=b32", "b64=b64"),
    EMU_SCALAR_ATOMIC("cmpswap", 1, kCmpswap, "b32=b32x2", "b64=b64x2"),
    EMU_SCALAR_ATOMIC("add", 2, kAdd, "u32=u32", "u64=u64"),
    EMU_SCALAR_ATOMIC("sub", 3, kSub, "u32=u32", "u64=u64"),
    EMU_SCALAR_ATOMIC("smin", 4, kSmin, "i32=i32", "i64=i64"),
    EMU_SCALAR_ATOMIC("umin", 5, kUmin, "u32=u32", "u64=u64"),
    EMU_SCALAR_ATOMIC("smax", 6, kSmax, "i32=i32", "i64=i64"),
    EMU_SCALAR_ATOMIC("umax", 7, kUmax, "u32=u32", "u64=u64"),
    EMU_SCALAR_ATOMIC("and", 8, kAnd, "b32=b32", "b64=b64"),
    EMU_SCALAR_ATOMIC("or", 9, kOr, "b32=b32", "b64=b64"),
    EMU_SCALAR_ATOMIC("xor", 10, kXor, "b32=b32", "b64=b64"),
    EMU_SCALAR_ATOMIC("inc", 11, kInc, "u32=u32", "u64=u64"),
    EMU_SCALAR_ATOMIC("dec", 12, kDec, "u32=u32", "u64=u64"),
};

#undef EMU_SCALAR_ATOMIC

}  // namespace

std::span<const Row> smem_atomic_rows() { return kRows; }

}  // namespace emu
