// SPDX-License-Identifier: MIT
#include "access.h"

#include "core/text.h"
#include "transfer.h"

namespace emu {
namespace {

/// GLOBAL: SGPR pair + 32-bit VGPR, or a VGPR pair; FLAT: always a VGPR pair. The offset is signed (FLAT: 12 bits, never below 0).
void vector_addresses(const Wave& w, const Op& op, u64* address) {
    const u32* const v = w.v(op.vaddr.index);
    const u64 offset = static_cast<u64>(i64{op.inst.offset});
    if (op.inst.has_saddr) {
        const u64 base = scalar64(w, op.saddr) + offset;
        for (int lane = 0; lane < kLanes; ++lane) address[lane] = base + v[lane];
    } else {
        for (int lane = 0; lane < kLanes; ++lane) address[lane] = lane64(v, lane) + offset;
    }
}

u64 lanes_in(const u64* address, u64 lanes, u64 aperture) {
    u64 mask = 0;
    for (int lane = 0; lane < kLanes; ++lane) mask |= u64{address[lane] >> 32 == aperture >> 32} << lane;
    return mask & lanes;
}

void to_offsets(const u64* address, u32* offset) {
    for (int lane = 0; lane < kLanes; ++lane) offset[lane] = static_cast<u32>(address[lane]);
}

void to_scratch(const Wave& w, const u32* offset, u64 lanes, u64* address) {
    const u64 base = address_of(w.scratch), each = w.group->launch->scratch_bytes;
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = lowest(rest);
        address[lane] = base + each * static_cast<u64>(lane) + offset[lane];
    }
}

}  // namespace

u64 lanes_within_each(const u32* address, u64 lanes, u32 bytes, u32 size) {
    if (size < bytes) return 0;
    return to_mask(load<u32v>(address) <= size - bytes) & lanes;
}

u64 scratch_lanes(Wave& w, const Op& op, const u32* offset, u64 lanes, u32 bytes, AccessKind kind) {
    if (w.group->tally) [[unlikely]]
        counters::on_scratch(w, op, offset, lanes, bytes, kind);
    if (w.shadow) [[unlikely]]
        lanes &= checks::on_scratch(w, op, offset, lanes, bytes, kind);
    const u32 size = w.group->launch->scratch_bytes;
    const u64 inside = lanes_within(offset, lanes, bytes, size);
    if (inside != lanes && !w.shadow) [[unlikely]] {
        const int lane = lowest(lanes & ~inside);
        fault(
            w, op,
            "lane " + std::to_string(lane) + " accesses scratch memory at byte " + std::to_string(offset[lane]) +
                ", beyond its " + std::to_string(size) + " bytes",
            700);
    }
    return inside;
}

u64 resolve_global(Wave& w, const Op& op, u64* address, u32 bytes, AccessKind kind) {
    vector_addresses(w, op, address);
    return global_lanes(w, op, address, w.exec(), bytes, kind);
}

u64 resolve_flat(Wave& w, const Op& op, u64* address, u32 bytes, AccessKind kind) {
    vector_addresses(w, op, address);
    const u64 exec = w.exec();
    const u64 shared = lanes_in(address, exec, kSharedAperture), own = lanes_in(address, exec, kPrivateAperture);
    u64 lanes = exec & ~shared & ~own;
    if (lanes == exec) [[likely]]
        return lanes ? global_lanes(w, op, address, lanes, bytes, kind) : 0;
    if (lanes) lanes = global_lanes(w, op, address, lanes, bytes, kind);
    alignas(64) u32 offset[kLanes];
    to_offsets(address, offset);
    if (shared) {
        const u64 inside = lds_lanes(w, op, offset, shared, bytes, kind);
        const u64 base = address_of(w.group->lds);
        for (u64 rest = inside; rest; rest &= rest - 1) address[lowest(rest)] = base + offset[lowest(rest)];
        lanes |= inside;
    }
    if (own) {
        const u64 inside = scratch_lanes(w, op, offset, own, bytes, kind);
        to_scratch(w, offset, inside, address);
        lanes |= inside;
    }
    return lanes;
}

u64 resolve_scratch(Wave& w, const Op& op, u64* address, u32 bytes, AccessKind kind) {
    alignas(64) u32 offset[kLanes];
    const u32 uniform = static_cast<u32>(op.inst.offset) + (op.inst.has_saddr ? scalar32(w, op.saddr) : 0);
    if (op.inst.has_vaddr) {
        store<u32v>(offset, load<u32v>(w.v(op.vaddr.index)) + uniform);
    } else {
        for (u32& word : offset) word = uniform;
    }
    const u64 lanes = scratch_lanes(w, op, offset, w.exec(), bytes, kind);
    to_scratch(w, offset, lanes, address);
    return lanes;
}

void require_aligned(const Wave& w, const Op& op, const u64* address, u64 lanes, u32 bytes) {
    for (u64 rest = lanes; rest; rest &= rest - 1) {
        const int lane = lowest(rest);
        if (address[lane] % bytes == 0) [[likely]]
            continue;
        fault(
            w, op,
            "lane " + std::to_string(lane) + "'s atomic at " + hex(address[lane]) + " is not aligned to " +
                std::to_string(bytes) + " bytes",
            700);
    }
}

}  // namespace emu
