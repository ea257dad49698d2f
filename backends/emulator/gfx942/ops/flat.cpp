// SPDX-License-Identifier: MIT
// FLAT, GLOBAL and SCRATCH loads and stores. They differ in how addresses come about (access.cpp) only.
#include "../table.h"
#include "transfer.h"

namespace emu {
namespace {

template <Resolve resolve, class Shape>
void load(Wave& w, const Op& op) {
    alignas(64) u64 address[kLanes];
    const u64 lanes = resolve(w, op, address, Shape::kBytes, AccessKind::Read);
    gather<Shape>(w.v(op.dst.index), 0, address, lanes, w.exec());
}

template <Resolve resolve, class Shape>
void store(Wave& w, const Op& op) {
    alignas(64) u64 address[kLanes];
    const u64 lanes = resolve(w, op, address, Shape::kBytes, AccessKind::Write);
    scatter<Shape>(w.v(op.vdata.index), 0, address, lanes);
}

template <Resolve resolve, class Shape>
void to_lds(Wave& w, const Op& op) {
    alignas(64) u64 address[kLanes];
    const u64 lanes = resolve(w, op, address, Shape::kBytes, AccessKind::Read);
    load_to_lds<Shape>(w, op, address, lanes, w.exec());
}

#define ROWS(name, opcode, signature, handler, shape, flags)                                                    \
    {"flat_" name, Format::Flat, opcode, signature, nullptr, handler<resolve_flat, shape>, flags, 0},           \
        {"global_" name, Format::Global, opcode, signature, nullptr, handler<resolve_global, shape>, flags, 0}, \
        {"scratch_" name, Format::Scratch, opcode, signature, nullptr, handler<resolve_scratch, shape>, flags, 0}
#define LDS_ROWS(name, opcode, shape)                                                                        \
    {"global_load_lds_" name, Format::Global, opcode, "", nullptr, to_lds<resolve_global, shape>, kLoad, 0}, \
        {"scratch_load_lds_" name, Format::Scratch, opcode, "", nullptr, to_lds<resolve_scratch, shape>, kLoad, 0}

constexpr Row kRows[] = {
    ROWS("load_ubyte", 16, "b32=", load, Ubyte, kLoad),
    ROWS("load_sbyte", 17, "b32=", load, Sbyte, kLoad),
    ROWS("load_ushort", 18, "b32=", load, Ushort, kLoad),
    ROWS("load_sshort", 19, "b32=", load, Sshort, kLoad),
    ROWS("load_dword", 20, "b32=", load, Dwords<1>, kLoad),
    ROWS("load_dwordx2", 21, "b32x2=", load, Dwords<2>, kLoad),
    ROWS("load_dwordx3", 22, "b32x3=", load, Dwords<3>, kLoad),
    ROWS("load_dwordx4", 23, "b32x4=", load, Dwords<4>, kLoad),
    ROWS("store_byte", 24, "=b32", store, Ubyte, kStore),
    ROWS("store_byte_d16_hi", 25, "=b32", store, UbyteHigh, kStore),
    ROWS("store_short", 26, "=b32", store, Ushort, kStore),
    ROWS("store_short_d16_hi", 27, "=b32", store, ShortHigh, kStore),
    ROWS("store_dword", 28, "=b32", store, Dwords<1>, kStore),
    ROWS("store_dwordx2", 29, "=b32x2", store, Dwords<2>, kStore),
    ROWS("store_dwordx3", 30, "=b32x3", store, Dwords<3>, kStore),
    ROWS("store_dwordx4", 31, "=b32x4", store, Dwords<4>, kStore),
    ROWS("load_ubyte_d16", 32, "b16p=", load, UbyteLow, kLoad),
    ROWS("load_ubyte_d16_hi", 33, "b16p=", load, UbyteHigh, kLoad),
    ROWS("load_sbyte_d16", 34, "b16p=", load, SbyteLow, kLoad),
    ROWS("load_sbyte_d16_hi", 35, "b16p=", load, SbyteHigh, kLoad),
    ROWS("load_short_d16", 36, "b16p=", load, ShortLow, kLoad),
    ROWS("load_short_d16_hi", 37, "b16p=", load, ShortHigh, kLoad),
    LDS_ROWS("ubyte", 38, Ubyte),
    LDS_ROWS("sbyte", 39, Sbyte),
    LDS_ROWS("ushort", 40, Ushort),
    LDS_ROWS("sshort", 41, Sshort),
    LDS_ROWS("dword", 42, Dwords<1>),
};

}  // namespace

std::span<const Row> flat_rows() { return kRows; }

}  // namespace emu
