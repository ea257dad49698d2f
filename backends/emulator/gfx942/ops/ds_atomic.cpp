// SPDX-License-Identifier: MIT
// LDS atomics. A workgroup runs on one CPU thread, so plain accesses are atomic here.
#include "../table.h"
#include "atomic.h"

namespace emu {
namespace {

using namespace atomic;

template <class Operation>
bool flushes(const Wave& w) {  // only additions look at MODE
    if constexpr (std::is_same_v<Operation, FloatAdd<f32>>) return !w.denormals32();
    if constexpr (std::is_same_v<Operation, FloatAdd<f64>>) return !w.denormals64();
    return false;
}

u64 resolve(Wave& w, const Op& op, u32 offset, u32 bytes, u64* address, u32 mask = ~u32{0}) {
    alignas(64) u32 to[kLanes];
    store<u32v>(to, (load<u32v>(w.v(op.vaddr.index)) + offset) & mask);
    const u64 lanes = lds_lanes(w, op, to, w.exec(), bytes, AccessKind::Atomic);
    for (int lane = 0; lane < kLanes; ++lane) address[lane] = to[lane];
    require_aligned(w, op, address, lanes, bytes);
    const u64 base = address_of(w.group->lds);
    for (int lane = 0; lane < kLanes; ++lane) address[lane] += base;
    return lanes;
}

template <class Operation, bool returns, bool two_sources>
void run(Wave& w, const Op& op) {
    using T = Operation::T;
    alignas(64) u64 address[kLanes];
    constexpr u32 mask = std::is_same_v<Operation, ConditionalExchange> ? 0xfff8 : ~u32{0};
    const u64 lanes = resolve(w, op, static_cast<u32>(op.inst.offset), sizeof(T), address, mask);
    const u32* const first = w.v(op.vdata.index);
    const u32* const second = two_sources ? w.v(op.vdata2.index) : nullptr;
    // Compare-and-store has the value to compare with first.
    constexpr bool swapped = std::is_same_v<Operation, CompareSwap<T>> ||
                             std::is_same_v<Operation, FloatCompareSwap<std::conditional_t<sizeof(T) == 4, f32, f64>>>;
    perform<Operation, false>(
        address, lanes, w.exec(), swapped ? second : first, swapped ? first : second,
        returns ? w.v(op.dst.index) : nullptr, flushes<Operation>(w));
}

/// Two exchanges a lane, at two offsets in elements (or 64 elements): all lanes at the first, then all at the second. The
/// destination may be any of the sources, so results wait until both are done.
template <class T, u32 spacing>
void exchange2(Wave& w, const Op& op) {
    alignas(64) u64 address[kLanes];
    alignas(64) u32 old[sizeof(T) / 2 * kLanes];
    constexpr int dwords = sizeof(T) / 4;
    const u64 exec = w.exec();
    const u32 offset = static_cast<u32>(op.inst.offset);
    u64 lanes = resolve(w, op, (offset & 255) * sizeof(T) * spacing, sizeof(T), address);
    perform<Swap<T>, false>(address, lanes, exec, w.v(op.vdata.index), nullptr, old, false);
    lanes = resolve(w, op, (offset >> 8 & 255) * sizeof(T) * spacing, sizeof(T), address);
    perform<Swap<T>, false>(address, lanes, exec, w.v(op.vdata2.index), nullptr, old + dwords * kLanes, false);
    u32* const d = w.v(op.dst.index);
    for (int i = 0; i < 2 * dwords; ++i)
        for (u64 rest = exec; rest; rest &= rest - 1) d[i * kLanes + lowest(rest)] = old[i * kLanes + lowest(rest)];
}

#define ONE(name, type, opcode, signature, operation)                                                            \
    {"ds_" name "_" type, Format::Ds, opcode, "=" signature, nullptr, run<operation, false, false>, kAtomic, 0}, \
        {"ds_" name "_rtn_" type, Format::Ds, (opcode) + 32,                                                     \
         signature "=" signature, nullptr,    run<operation, true, false>,                                       \
         kAtomic | kReturns,      0}
#define TWO(name, type, opcode, signature, operation)                                       \
    {"ds_" name "_" type,         Format::Ds, opcode, "=" signature "," signature, nullptr, \
     run<operation, false, true>, kAtomic,    0},                                           \
        {"ds_" name "_rtn_" type,                                                           \
         Format::Ds,                                                                        \
         (opcode) + 32,                                                                     \
         signature "=" signature "," signature,                                             \
         nullptr,                                                                           \
         run<operation, true, true>,                                                        \
         kAtomic | kReturns,                                                                \
         0}

constexpr Row kRows[] = {
    ONE("add", "u32", 0, "u32", Add<u32>),
    ONE("sub", "u32", 1, "u32", Sub<u32>),
    ONE("rsub", "u32", 2, "u32", Rsub<u32>),
    ONE("inc", "u32", 3, "u32", Inc<u32>),
    ONE("dec", "u32", 4, "u32", Dec<u32>),
    ONE("min", "i32", 5, "i32", Smin<u32>),
    ONE("max", "i32", 6, "i32", Smax<u32>),
    ONE("min", "u32", 7, "u32", Umin<u32>),
    ONE("max", "u32", 8, "u32", Umax<u32>),
    ONE("and", "b32", 9, "b32", And<u32>),
    ONE("or", "b32", 10, "b32", Or<u32>),
    ONE("xor", "b32", 11, "b32", Xor<u32>),
    TWO("mskor", "b32", 12, "b32", MaskOr<u32>),
    TWO("cmpst", "b32", 16, "b32", CompareSwap<u32>),
    TWO("cmpst", "f32", 17, "f32", FloatCompareSwap<f32>),
    ONE("min", "f32", 18, "f32", FloatMin<f32>),
    ONE("max", "f32", 19, "f32", FloatMax<f32>),
    ONE("add", "f32", 21, "f32", FloatAdd<f32>),
    {"ds_pk_add_f16", Format::Ds, 23, "=pf16", nullptr, run<PackedAdd<F16Sum>, false, false>, kAtomic, 0},
    {"ds_pk_add_bf16", Format::Ds, 24, "=pbf16", nullptr, run<PackedAdd<Bf16Sum>, false, false>, kAtomic, 0},
    {"ds_wrxchg_rtn_b32", Format::Ds, 45, "b32=b32", nullptr, run<Swap<u32>, true, false>, kAtomic | kReturns, 0},
    {"ds_wrxchg2_rtn_b32", Format::Ds, 46, "b32x2=b32,b32", nullptr, exchange2<u32, 1>, kAtomic | kReturns, 0},
    {"ds_wrxchg2st64_rtn_b32", Format::Ds, 47, "b32x2=b32,b32", nullptr, exchange2<u32, 64>, kAtomic | kReturns, 0},
    {"ds_wrap_rtn_b32", Format::Ds, 52, "b32=b32,b32", nullptr, run<Wrap, true, true>, kAtomic | kReturns, 0},
    ONE("add", "u64", 64, "u64", Add<u64>),
    ONE("sub", "u64", 65, "u64", Sub<u64>),
    ONE("rsub", "u64", 66, "u64", Rsub<u64>),
    ONE("inc", "u64", 67, "u64", Inc<u64>),
    ONE("dec", "u64", 68, "u64", Dec<u64>),
    ONE("min", "i64", 69, "i64", Smin<u64>),
    ONE("max", "i64", 70, "i64", Smax<u64>),
    ONE("min", "u64", 71, "u64", Umin<u64>),
    ONE("max", "u64", 72, "u64", Umax<u64>),
    ONE("and", "b64", 73, "b64", And<u64>),
    ONE("or", "b64", 74, "b64", Or<u64>),
    ONE("xor", "b64", 75, "b64", Xor<u64>),
    TWO("mskor", "b64", 76, "b64", MaskOr<u64>),
    TWO("cmpst", "b64", 80, "b64", CompareSwap<u64>),
    TWO("cmpst", "f64", 81, "f64", FloatCompareSwap<f64>),
    ONE("min", "f64", 82, "f64", FloatMin<f64>),
    ONE("max", "f64", 83, "f64", FloatMax<f64>),
    ONE("add", "f64", 92, "f64", FloatAdd<f64>),
    {"ds_wrxchg_rtn_b64", Format::Ds, 109, "b64=b64", nullptr, run<Swap<u64>, true, false>, kAtomic | kReturns, 0},
    {"ds_wrxchg2_rtn_b64", Format::Ds, 110, "b32x4=b64,b64", nullptr, exchange2<u64, 1>, kAtomic | kReturns, 0},
    {"ds_wrxchg2st64_rtn_b64", Format::Ds, 111, "b32x4=b64,b64", nullptr, exchange2<u64, 64>, kAtomic | kReturns, 0},
    {"ds_condxchg32_rtn_b64", Format::Ds, 126, "b64=b64", nullptr, run<ConditionalExchange, true, false>,
     kAtomic | kReturns, 0},
    {"ds_pk_add_rtn_f16", Format::Ds, 183, "pf16=pf16", nullptr, run<PackedAdd<F16Sum>, true, false>,
     kAtomic | kReturns, 0},
    {"ds_pk_add_rtn_bf16", Format::Ds, 184, "pbf16=pbf16", nullptr, run<PackedAdd<Bf16Sum>, true, false>,
     kAtomic | kReturns, 0},
};

}  // namespace

std::span<const Row> ds_atomic_rows() { return kRows; }

}  // namespace emu
