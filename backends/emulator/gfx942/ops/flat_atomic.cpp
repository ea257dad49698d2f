// SPDX-License-Identifier: MIT
// FLAT and GLOBAL atomics: real atomics of the CPU, because workgroups run on several threads. The old value is returned
// with sc0 only. Denormals are kept (gfx942's memory atomics do so whatever MODE says).
#include "../table.h"
#include "atomic.h"

namespace emu {
namespace {

using namespace atomic;

template <Resolve resolve, class Operation, bool compare>
void run(Wave& w, const Op& op) {
    using T = Operation::T;
    alignas(64) u64 address[kLanes];
    const u64 lanes = resolve(w, op, address, sizeof(T), AccessKind::Atomic);
    require_aligned(w, op, address, lanes, sizeof(T));
    const u32* const source = w.v(op.vdata.index);
    perform<Operation, true>(
        address, lanes, w.exec(), source, compare ? source + sizeof(T) / 4 * kLanes : nullptr,
        op.inst.sc0 ? w.v(op.dst.index) : nullptr, false);
}

#define ROWS(name, opcode, signature, compare, ...) \
    {"flat_atomic_" name,                           \
     Format::Flat,                                  \
     opcode,                                        \
     signature,                                     \
     nullptr,                                       \
     run<resolve_flat, __VA_ARGS__, compare>,       \
     kAtomic | kReturns,                            \
     0},                                            \
        {"global_atomic_" name,                     \
         Format::Global,                            \
         opcode,                                    \
         signature,                                 \
         nullptr,                                   \
         run<resolve_global, __VA_ARGS__, compare>, \
         kAtomic | kReturns,                        \
         0}

constexpr Row kRows[] = {
    ROWS("swap", 64, "b32=b32", false, Swap<u32>),
    ROWS("cmpswap", 65, "b32=b32x2", true, CompareSwap<u32>),
    ROWS("add", 66, "u32=u32", false, Add<u32>),
    ROWS("sub", 67, "u32=u32", false, Sub<u32>),
    ROWS("smin", 68, "i32=i32", false, Smin<u32>),
    ROWS("umin", 69, "u32=u32", false, Umin<u32>),
    ROWS("smax", 70, "i32=i32", false, Smax<u32>),
    ROWS("umax", 71, "u32=u32", false, Umax<u32>),
    ROWS("and", 72, "b32=b32", false, And<u32>),
    ROWS("or", 73, "b32=b32", false, Or<u32>),
    ROWS("xor", 74, "b32=b32", false, Xor<u32>),
    ROWS("inc", 75, "u32=u32", false, Inc<u32>),
    ROWS("dec", 76, "u32=u32", false, Dec<u32>),
    ROWS("add_f32", 77, "f32=f32", false, FloatAdd<f32>),
    ROWS("pk_add_f16", 78, "pf16=pf16", false, PackedAdd<F16Sum>),
    ROWS("add_f64", 79, "f64=f64", false, FloatAdd<f64>),
    ROWS("min_f64", 80, "f64=f64", false, FloatMin<f64>),
    ROWS("max_f64", 81, "f64=f64", false, FloatMax<f64>),
    ROWS("pk_add_bf16", 82, "pbf16=pbf16", false, PackedAdd<Bf16Sum>),
    ROWS("swap_x2", 96, "b64=b64", false, Swap<u64>),
    ROWS("cmpswap_x2", 97, "b64=b64x2", true, CompareSwap<u64>),
    ROWS("add_x2", 98, "u64=u64", false, Add<u64>),
    ROWS("sub_x2", 99, "u64=u64", false, Sub<u64>),
    ROWS("smin_x2", 100, "i64=i64", false, Smin<u64>),
    ROWS("umin_x2", 101, "u64=u64", false, Umin<u64>),
    ROWS("smax_x2", 102, "i64=i64", false, Smax<u64>),
    ROWS("umax_x2", 103, "u64=u64", false, Umax<u64>),
    ROWS("and_x2", 104, "b64=b64", false, And<u64>),
    ROWS("or_x2", 105, "b64=b64", false, Or<u64>),
    ROWS("xor_x2", 106, "b64=b64", false, Xor<u64>),
    ROWS("inc_x2", 107, "u64=u64", false, Inc<u64>),
    ROWS("dec_x2", 108, "u64=u64", false, Dec<u64>),
};

}  // namespace

std::span<const Row> flat_atomic_rows() { return kRows; }

}  // namespace emu
