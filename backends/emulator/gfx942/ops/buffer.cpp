// SPDX-License-Identifier: MIT
// Untyped buffer instructions (MUBUF): loads, stores, atomics, loads to LDS, cache control.
#include <atomic>

#include "../table.h"
#include "atomic.h"
#include "buffer_address.h"

namespace emu {

/// Elements of 4 bytes of `index_stride` consecutive indices lie together.
u64 BufferAccess::swizzled(u32 extra, u32 bytes, u64 exec, u64* address) const {
    constexpr u64 kElement = 4;
    u64 mask = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        const u64 index = index_[lane], offset = offset_[lane] + extra;
        const u64 row = index / buffer.index_stride, column = index % buffer.index_stride;
        const u64 place = (row * buffer.stride + offset / kElement * kElement) * buffer.index_stride +
                          column * kElement + offset % kElement;
        address[lane] = buffer.base + soffset_ + place;
        const bool outside = index >= buffer.records || (indexed_ && offset + bytes > buffer.stride);
        mask |= u64{!outside} << lane;
    }
    return mask & exec;
}

namespace {

template <class Shape>
constexpr int kParts = 0;  // dwords that are range-checked one by one
template <int N>
constexpr int kParts<Dwords<N>> = N > 1 ? N : 0;

/// Several dwords: each is checked, and in swizzled buffers also placed, on its own. Lanes that are in range as a whole are
/// done at once all the same, so that this is for the others.
u64 whole_lanes(const BufferAccess& access, u32 bytes, int parts, u64 exec, u64* address) {
    return parts && access.buffer.swizzled ? 0 : access.lanes(0, bytes, exec, address);
}

template <class Shape>
void load(Wave& w, const Op& op) {
    alignas(64) u64 address[kLanes];
    const BufferAccess access(w, op);
    const u64 exec = w.exec();
    const u64 whole = whole_lanes(access, Shape::kBytes, kParts<Shape>, exec, address);
    const u64 lanes = whole ? global_lanes(w, op, address, whole, Shape::kBytes, AccessKind::Read) : 0;
    if constexpr (
        std::is_same_v<Shape, Dwords<1>> || std::is_same_v<Shape, Ubyte> || std::is_same_v<Shape, Sbyte> ||
        std::is_same_v<Shape, Ushort> || std::is_same_v<Shape, Sshort>) {
        if (op.inst.lds) return load_to_lds<Shape>(w, op, address, lanes, exec);
    } else if (op.inst.lds) {
        fault(w, op, "this load has no form that writes to LDS");
    }
    u32* const d = w.v(op.dst.index);
    gather<Shape>(d, 0, address, lanes, exec);
    if (whole == exec) [[likely]]
        return;
    for (int part = 0; part < kParts<Shape>; ++part) {
        const u64 some = access.lanes(4 * static_cast<u32>(part), 4, exec & ~whole, address);
        if (some)
            gather<Dwords<1>>(
                d + part * kLanes, 0, address, global_lanes(w, op, address, some, 4, AccessKind::Read), 0);
    }
}

template <class Shape>
void store(Wave& w, const Op& op) {
    alignas(64) u64 address[kLanes];
    const BufferAccess access(w, op);
    const u64 exec = w.exec();
    const u64 whole = whole_lanes(access, Shape::kBytes, kParts<Shape>, exec, address);
    const u32* const s = w.v(op.vdata.index);
    if (whole) scatter<Shape>(s, 0, address, global_lanes(w, op, address, whole, Shape::kBytes, AccessKind::Write));
    if (whole == exec) [[likely]]
        return;
    for (int part = 0; part < kParts<Shape>; ++part) {
        const u64 some = access.lanes(4 * static_cast<u32>(part), 4, exec & ~whole, address);
        if (some)
            scatter<Dwords<1>>(s + part * kLanes, 0, address, global_lanes(w, op, address, some, 4, AccessKind::Write));
    }
}

using namespace atomic;

template <class Operation, bool compare>
void run(Wave& w, const Op& op) {
    using T = Operation::T;
    alignas(64) u64 address[kLanes];
    u64 lanes = BufferAccess(w, op).lanes(0, sizeof(T), w.exec(), address);
    if (lanes) lanes = global_lanes(w, op, address, lanes, sizeof(T), AccessKind::Atomic);
    require_aligned(w, op, address, lanes, sizeof(T));
    const u32* const source = w.v(op.vdata.index);
    perform<Operation, true>(
        address, lanes, w.exec(), source, compare ? source + sizeof(T) / 4 * kLanes : nullptr,
        op.inst.sc0 ? w.v(op.dst.index) : nullptr, false);
}

/// Caches are the host's, which are coherent; what is left is the order.
void fence(Wave&, const Op&) { std::atomic_thread_fence(std::memory_order_seq_cst); }

#define LOAD(name, opcode, signature, shape) \
    {"buffer_load_" name, Format::Mubuf, opcode, signature, nullptr, load<shape>, kLoad, 0}
#define STORE(name, opcode, signature, shape) \
    {"buffer_store_" name, Format::Mubuf, opcode, signature, nullptr, store<shape>, kStore, 0}
#define ATOMIC(name, opcode, signature, compare, ...) \
    {"buffer_atomic_" name, Format::Mubuf, opcode, signature, nullptr, run<__VA_ARGS__, compare>, kAtomic | kReturns, 0}

constexpr Row kRows[] = {
    LOAD("ubyte", 16, "b32=", Ubyte),
    LOAD("sbyte", 17, "b32=", Sbyte),
    LOAD("ushort", 18, "b32=", Ushort),
    LOAD("sshort", 19, "b32=", Sshort),
    LOAD("dword", 20, "b32=", Dwords<1>),
    LOAD("dwordx2", 21, "b32x2=", Dwords<2>),
    LOAD("dwordx3", 22, "b32x3=", Dwords<3>),
    LOAD("dwordx4", 23, "b32x4=", Dwords<4>),
    STORE("byte", 24, "=b32", Ubyte),
    STORE("byte_d16_hi", 25, "=b32", UbyteHigh),
    STORE("short", 26, "=b32", Ushort),
    STORE("short_d16_hi", 27, "=b32", ShortHigh),
    STORE("dword", 28, "=b32", Dwords<1>),
    STORE("dwordx2", 29, "=b32x2", Dwords<2>),
    STORE("dwordx3", 30, "=b32x3", Dwords<3>),
    STORE("dwordx4", 31, "=b32x4", Dwords<4>),
    LOAD("ubyte_d16", 32, "b16p=", UbyteLow),
    LOAD("ubyte_d16_hi", 33, "b16p=", UbyteHigh),
    LOAD("sbyte_d16", 34, "b16p=", SbyteLow),
    LOAD("sbyte_d16_hi", 35, "b16p=", SbyteHigh),
    LOAD("short_d16", 36, "b16p=", ShortLow),
    LOAD("short_d16_hi", 37, "b16p=", ShortHigh),
    {"buffer_wbl2", Format::Mubuf, 40, "", nullptr, fence, 0, 0},
    {"buffer_inv", Format::Mubuf, 41, "", nullptr, fence, 0, 0},
    ATOMIC("swap", 64, "b32=b32", false, Swap<u32>),
    ATOMIC("cmpswap", 65, "b32=b32x2", true, CompareSwap<u32>),
    ATOMIC("add", 66, "u32=u32", false, Add<u32>),
    ATOMIC("sub", 67, "u32=u32", false, Sub<u32>),
    ATOMIC("smin", 68, "i32=i32", false, Smin<u32>),
    ATOMIC("umin", 69, "u32=u32", false, Umin<u32>),
    ATOMIC("smax", 70, "i32=i32", false, Smax<u32>),
    ATOMIC("umax", 71, "u32=u32", false, Umax<u32>),
    ATOMIC("and", 72, "b32=b32", false, And<u32>),
    ATOMIC("or", 73, "b32=b32", false, Or<u32>),
    ATOMIC("xor", 74, "b32=b32", false, Xor<u32>),
    ATOMIC("inc", 75, "u32=u32", false, Inc<u32>),
    ATOMIC("dec", 76, "u32=u32", false, Dec<u32>),
    ATOMIC("add_f32", 77, "f32=f32", false, FloatAdd<f32>),
    ATOMIC("pk_add_f16", 78, "pf16=pf16", false, PackedAdd<F16Sum>),
    ATOMIC("add_f64", 79, "f64=f64", false, FloatAdd<f64>),
    ATOMIC("min_f64", 80, "f64=f64", false, FloatMin<f64>),
    ATOMIC("max_f64", 81, "f64=f64", false, FloatMax<f64>),
    ATOMIC("swap_x2", 96, "b64=b64", false, Swap<u64>),
    ATOMIC("cmpswap_x2", 97, "b64=b64x2", true, CompareSwap<u64>),
    ATOMIC("add_x2", 98, "u64=u64", false, Add<u64>),
    ATOMIC("sub_x2", 99, "u64=u64", false, Sub<u64>),
    ATOMIC("smin_x2", 100, "i64=i64", false, Smin<u64>),
    ATOMIC("umin_x2", 101, "u64=u64", false, Umin<u64>),
    ATOMIC("smax_x2", 102, "i64=i64", false, Smax<u64>),
    ATOMIC("umax_x2", 103, "u64=u64", false, Umax<u64>),
    ATOMIC("and_x2", 104, "b64=b64", false, And<u64>),
    ATOMIC("or_x2", 105, "b64=b64", false, Or<u64>),
    ATOMIC("xor_x2", 106, "b64=b64", false, Xor<u64>),
    ATOMIC("inc_x2", 107, "u64=u64", false, Inc<u64>),
    ATOMIC("dec_x2", 108, "u64=u64", false, Dec<u64>),
};

}  // namespace

std::span<const Row> buffer_rows() { return kRows; }

}  // namespace emu
