// SPDX-License-Identifier: MIT
// LDS loads and stores. Unaligned access mode is on: any address will do.
#include "../table.h"
#include "transfer.h"

namespace emu {
namespace {

u64 lds_base(const Wave& w) { return address_of(w.group->lds); }

/// The offset field is one 16-bit number (two 8-bit ones in read2 and write2), added modulo 2^32.
void address(const Wave& w, const Op& op, u32 offset, u32* to) {
    store<u32v>(to, load<u32v>(w.v(op.vaddr.index)) + offset);
}

template <class Shape>
void read(Wave& w, const Op& op) {
    alignas(64) u32 from[kLanes];
    const u64 exec = w.exec();
    address(w, op, static_cast<u32>(op.inst.offset), from);
    gather<Shape>(
        w.v(op.dst.index), lds_base(w), from, lds_lanes(w, op, from, exec, Shape::kBytes, AccessKind::Read), exec);
}

template <class Shape>
void write(Wave& w, const Op& op) {
    alignas(64) u32 to[kLanes];
    address(w, op, static_cast<u32>(op.inst.offset), to);
    const u64 lanes = lds_lanes(w, op, to, w.exec(), Shape::kBytes, AccessKind::Write);
    scatter<Shape>(w.v(op.vdata.index), lds_base(w), to, lanes);
}

/// Two addresses a lane: the offsets count elements (or 64 elements). The destination may contain the address register.
template <int dwords, u32 spacing>
void read2(Wave& w, const Op& op) {
    using Shape = Dwords<dwords>;
    alignas(64) u32 first[kLanes];
    alignas(64) u32 second[kLanes];
    const u64 exec = w.exec();
    const u32 offset = static_cast<u32>(op.inst.offset);
    address(w, op, (offset & 255) * Shape::kBytes * spacing, first);
    address(w, op, (offset >> 8 & 255) * Shape::kBytes * spacing, second);
    const u64 one = lds_lanes(w, op, first, exec, Shape::kBytes, AccessKind::Read);
    const u64 two = lds_lanes(w, op, second, exec, Shape::kBytes, AccessKind::Read);
    u32* const d = w.v(op.dst.index);
    gather<Shape>(d, lds_base(w), first, one, exec);
    gather<Shape>(d + dwords * kLanes, lds_base(w), second, two, exec);
}

template <int dwords, u32 spacing>
void write2(Wave& w, const Op& op) {
    using Shape = Dwords<dwords>;
    alignas(64) u32 first[kLanes];
    alignas(64) u32 second[kLanes];
    const u32 offset = static_cast<u32>(op.inst.offset);
    address(w, op, (offset & 255) * Shape::kBytes * spacing, first);
    address(w, op, (offset >> 8 & 255) * Shape::kBytes * spacing, second);
    const u64 one = lds_lanes(w, op, first, w.exec(), Shape::kBytes, AccessKind::Write);
    scatter<Shape>(w.v(op.vdata.index), lds_base(w), first, one);
    if ((offset & 255) == (offset >> 8 & 255)) return;  // one address: only the first data are written (ISA guide)
    const u64 two = lds_lanes(w, op, second, w.exec(), Shape::kBytes, AccessKind::Write);
    scatter<Shape>(w.v(op.vdata2.index), lds_base(w), second, two);
}

/// M0[15:0] + offset + 4 * lane, without an address register.
void lane_address(const Wave& w, const Op& op, u32* to) {
    const u32 first = (w.m0() & 0xffffu) + static_cast<u32>(op.inst.offset);
    for (int lane = 0; lane < kLanes; ++lane) to[lane] = first + 4u * static_cast<u32>(lane);
}

void read_addtid(Wave& w, const Op& op) {
    alignas(64) u32 from[kLanes];
    lane_address(w, op, from);
    const u64 lanes = lds_lanes(w, op, from, w.exec(), 4, AccessKind::Read);
    gather<Dwords<1>>(w.v(op.dst.index), lds_base(w), from, lanes, w.exec());
}

void write_addtid(Wave& w, const Op& op) {
    alignas(64) u32 to[kLanes];
    lane_address(w, op, to);
    scatter<Dwords<1>>(w.v(op.vdata.index), lds_base(w), to, lds_lanes(w, op, to, w.exec(), 4, AccessKind::Write));
}

/// Adds or subtracts the number of active lanes; all of them get the value from before.
template <bool append>
void count_lanes(Wave& w, const Op& op) {
    const u64 exec = w.exec();
    if (!exec) return;
    alignas(64) u32 to[kLanes];
    for (u32& word : to) word = (w.m0() & 0xffffu) + static_cast<u32>(op.inst.offset);
    const u64 leader = exec & (0 - exec);
    u32 before = 0;
    if (lds_lanes(w, op, to, leader, 4, AccessKind::Atomic)) {
        const u32 count = static_cast<u32>(__builtin_popcountll(exec));
        std::memcpy(&before, w.group->lds + to[0], 4);
        const u32 after = append ? before + count : before - count;
        std::memcpy(w.group->lds + to[0], &after, 4);
    }
    u32* const d = w.v(op.dst.index);
    for (u64 rest = exec; rest; rest &= rest - 1) d[lowest(rest)] = before;
}

void nop(Wave&, const Op&) {}

void wave_sync(Wave& w, const Op& op) {
    fault(
        w, op,
        "global wave sync needs a resource that the driver allots to the whole grid; the emulated device has none");
}

constexpr Row kRows[] = {
    {"ds_write_b32", Format::Ds, 13, "=b32", nullptr, write<Dwords<1>>, kStore, 0},
    {"ds_write2_b32", Format::Ds, 14, "=b32,b32", nullptr, write2<1, 1>, kStore, 0},
    {"ds_write2st64_b32", Format::Ds, 15, "=b32,b32", nullptr, write2<1, 64>, kStore, 0},
    {"ds_nop", Format::Ds, 20, "", nullptr, nop, 0, 0},
    {"ds_write_addtid_b32", Format::Ds, 29, "=b32", nullptr, write_addtid, kStore, 0},
    {"ds_write_b8", Format::Ds, 30, "=b32", nullptr, write<Ubyte>, kStore, 0},
    {"ds_write_b16", Format::Ds, 31, "=b32", nullptr, write<Ushort>, kStore, 0},
    {"ds_read_b32", Format::Ds, 54, "b32=", nullptr, read<Dwords<1>>, kLoad, 0},
    {"ds_read2_b32", Format::Ds, 55, "b32x2=", nullptr, read2<1, 1>, kLoad, 0},
    {"ds_read2st64_b32", Format::Ds, 56, "b32x2=", nullptr, read2<1, 64>, kLoad, 0},
    {"ds_read_i8", Format::Ds, 57, "b32=", nullptr, read<Sbyte>, kLoad, 0},
    {"ds_read_u8", Format::Ds, 58, "b32=", nullptr, read<Ubyte>, kLoad, 0},
    {"ds_read_i16", Format::Ds, 59, "b32=", nullptr, read<Sshort>, kLoad, 0},
    {"ds_read_u16", Format::Ds, 60, "b32=", nullptr, read<Ushort>, kLoad, 0},
    {"ds_write_b64", Format::Ds, 77, "=b32x2", nullptr, write<Dwords<2>>, kStore, 0},
    {"ds_write2_b64", Format::Ds, 78, "=b32x2,b32x2", nullptr, write2<2, 1>, kStore, 0},
    {"ds_write2st64_b64", Format::Ds, 79, "=b32x2,b32x2", nullptr, write2<2, 64>, kStore, 0},
    {"ds_write_b8_d16_hi", Format::Ds, 84, "=b32", nullptr, write<UbyteHigh>, kStore, 0},
    {"ds_write_b16_d16_hi", Format::Ds, 85, "=b32", nullptr, write<ShortHigh>, kStore, 0},
    {"ds_read_u8_d16", Format::Ds, 86, "b16p=", nullptr, read<UbyteLow>, kLoad, 0},
    {"ds_read_u8_d16_hi", Format::Ds, 87, "b16p=", nullptr, read<UbyteHigh>, kLoad, 0},
    {"ds_read_i8_d16", Format::Ds, 88, "b16p=", nullptr, read<SbyteLow>, kLoad, 0},
    {"ds_read_i8_d16_hi", Format::Ds, 89, "b16p=", nullptr, read<SbyteHigh>, kLoad, 0},
    {"ds_read_u16_d16", Format::Ds, 90, "b16p=", nullptr, read<ShortLow>, kLoad, 0},
    {"ds_read_u16_d16_hi", Format::Ds, 91, "b16p=", nullptr, read<ShortHigh>, kLoad, 0},
    {"ds_read_b64", Format::Ds, 118, "b32x2=", nullptr, read<Dwords<2>>, kLoad, 0},
    {"ds_read2_b64", Format::Ds, 119, "b32x4=", nullptr, read2<2, 1>, kLoad, 0},
    {"ds_read2st64_b64", Format::Ds, 120, "b32x4=", nullptr, read2<2, 64>, kLoad, 0},
    {"ds_gws_sema_release_all", Format::Ds, 152, "", nullptr, wave_sync, 0, 0},
    {"ds_gws_init", Format::Ds, 153, "", nullptr, wave_sync, 0, 0},
    {"ds_gws_sema_v", Format::Ds, 154, "", nullptr, wave_sync, 0, 0},
    {"ds_gws_sema_br", Format::Ds, 155, "", nullptr, wave_sync, 0, 0},
    {"ds_gws_sema_p", Format::Ds, 156, "", nullptr, wave_sync, 0, 0},
    {"ds_gws_barrier", Format::Ds, 157, "", nullptr, wave_sync, 0, 0},
    {"ds_read_addtid_b32", Format::Ds, 182, "b32=", nullptr, read_addtid, kLoad, 0},
    {"ds_consume", Format::Ds, 189, "b32=", nullptr, count_lanes<false>, kAtomic, 0},
    {"ds_append", Format::Ds, 190, "b32=", nullptr, count_lanes<true>, kAtomic, 0},
    {"ds_write_b96", Format::Ds, 222, "=b32x3", nullptr, write<Dwords<3>>, kStore, 0},
    {"ds_write_b128", Format::Ds, 223, "=b32x4", nullptr, write<Dwords<4>>, kStore, 0},
    {"ds_read_b96", Format::Ds, 254, "b32x3=", nullptr, read<Dwords<3>>, kLoad, 0},
    {"ds_read_b128", Format::Ds, 255, "b32x4=", nullptr, read<Dwords<4>>, kLoad, 0},
};

}  // namespace

std::span<const Row> ds_rows() { return kRows; }

}  // namespace emu
