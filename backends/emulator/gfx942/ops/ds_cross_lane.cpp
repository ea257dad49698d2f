// SPDX-License-Identifier: MIT
// DS instructions that move data between lanes without touching LDS.
#include <array>

#include "../table.h"
#include "transfer.h"

namespace emu {
namespace {

using Sources = std::array<u8, kLanes>;

constexpr u32 reversed5(u32 lane) {
    return (lane & 1) << 4 | (lane & 2) << 2 | (lane & 4) | (lane & 8) >> 2 | (lane & 16) >> 4;
}

/// Which lane each lane reads in ds_swizzle_b32, from its offset field. Modes other than quad permutation stay within 32 lanes:
///   11 1x… FFT: lanes in bit-reversed order, except for the bits of the mask [4:0]
///   110 …  rotation by [9:5], downwards with [10], except for the bits of the mask [4:0]
///   1 …    the lane of its four that [2i+1:2i] says
///   0 …    (lane and [4:0] or [9:5]) xor [14:10]
Sources swizzle_sources(u32 offset) {
    Sources from{};
    for (u32 lane = 0; lane < kLanes; ++lane) {
        const u32 i = lane & 31, mask = offset & 31;
        u32 source;
        if (offset >= 0xe000) {
            source = reversed5(i) >> __builtin_popcount(mask) | (i & mask);
        } else if (offset >= 0xc000) {
            const u32 by = offset >> 5 & 31;
            source = (i & mask) | ((offset >> 10 & 1 ? i - by : i + by) & ~mask & 31);
        } else if (offset & 0x8000) {
            source = (i & ~3u) | (offset >> 2 * (i & 3) & 3);
        } else {
            source = ((i & mask) | (offset >> 5 & 31)) ^ (offset >> 10 & 31);
        }
        from[lane] = static_cast<u8>(source | (lane & 32));
    }
    return from;
}

void put(Wave& w, const Op& op, const u32* value) {
    u32* const d = w.v(op.dst.index);
    if (w.exec() == kAllLanes) {
        store<u32v>(d, load<u32v>(value));
        return;
    }
    for (u64 rest = w.exec(); rest; rest &= rest - 1) d[lowest(rest)] = value[lowest(rest)];
}

/// Lanes that EXEC excludes give 0.
void swizzle(Wave& w, const Op& op) {
    const Sources from = swizzle_sources(static_cast<u32>(op.inst.offset) & 0xffffu);
    const u32* const s = w.v(op.vaddr.index);
    const u32* const mask = w.mask();
    alignas(64) u32 value[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) value[lane] = s[from[lane]] & mask[from[lane]];
    put(w, op, value);
}

/// "Push": each active lane sends its data to a lane; the highest sender wins, and lanes that nobody sends to get 0.
void permute(Wave& w, const Op& op) {
    const u32* const to = w.v(op.vaddr.index);
    const u32* const s = w.v(op.vdata.index);
    const u32 offset = static_cast<u32>(op.inst.offset);
    alignas(64) u32 value[kLanes] = {};
    for (u64 rest = w.exec(); rest; rest &= rest - 1) {
        const int lane = lowest(rest);
        value[(to[lane] + offset) / 4 % kLanes] = s[lane];
    }
    put(w, op, value);
}

/// "Pull": each lane reads a lane's data; 0 from lanes that EXEC excludes.
void bpermute(Wave& w, const Op& op) {
    const u32* const from = w.v(op.vaddr.index);
    const u32* const s = w.v(op.vdata.index);
    const u32* const mask = w.mask();
    const u32 offset = static_cast<u32>(op.inst.offset);
    alignas(64) u32 value[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
        const u32 source = (from[lane] + offset) / 4 % kLanes;
        value[lane] = s[source] & mask[source];
    }
    put(w, op, value);
}

constexpr Row kRows[] = {
    {"ds_swizzle_b32", Format::Ds, 61, "b32=", nullptr, swizzle, 0, 0},
    {"ds_permute_b32", Format::Ds, 62, "b32=b32", nullptr, permute, 0, 0},
    {"ds_bpermute_b32", Format::Ds, 63, "b32=b32", nullptr, bpermute, 0, 0},
};

}  // namespace

std::span<const Row> ds_cross_lane_rows() { return kRows; }

}  // namespace emu
