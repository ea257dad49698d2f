// SPDX-License-Identifier: MIT
// How instructions reach memory: one call per instruction tells the checks and the counters what all its lanes will touch;
// the access itself is then done without further questions, in the lanes that may go on.
#pragma once

#include "../wave.h"

namespace emu {

enum class AccessKind : u8 { Read, Write, Atomic };

// Defined in gfx942/checks/. Called only where w.shadow is not null, before the access. `address` has 64 elements; only those
// of `lanes` mean something. Each such lane touches `bytes` bytes from its address. Returns the lanes that may go on; for the
// others, loads return 0 and stores and atomics are dropped. Instructions with two addresses a lane call twice.
namespace checks {
u64 on_global(Wave&, const Op&, const u64* address, u64 lanes, u32 bytes, AccessKind);
/// Byte addresses within the workgroup's LDS, not yet checked against its size.
u64 on_lds(Wave&, const Op&, const u32* address, u64 lanes, u32 bytes, AccessKind);
/// Byte offsets within the lane's own scratch memory, not yet checked against its size.
u64 on_scratch(Wave&, const Op&, const u32* offset, u64 lanes, u32 bytes, AccessKind);
/// Scalar loads: the whole wave reads `bytes` bytes once. False: returns zeros instead.
bool on_scalar(Wave&, const Op&, u64 address, u32 bytes, AccessKind);
}  // namespace checks

// Defined in gfx942/counters/. Called only where w.group->tally is not null, with the same meaning.
namespace counters {
void on_global(Wave&, const Op&, const u64* address, u64 lanes, u32 bytes, AccessKind);
void on_lds(Wave&, const Op&, const u32* address, u64 lanes, u32 bytes, AccessKind);
void on_scratch(Wave&, const Op&, const u32* offset, u64 lanes, u32 bytes, AccessKind);
void on_scalar(Wave&, const Op&, u64 address, u32 bytes, AccessKind);
}  // namespace counters

inline u64 global_lanes(Wave& w, const Op& op, const u64* address, u64 lanes, u32 bytes, AccessKind kind) {
    if (w.group->tally) [[unlikely]]
        counters::on_global(w, op, address, lanes, bytes, kind);
    if (w.shadow) [[unlikely]]
        return checks::on_global(w, op, address, lanes, bytes, kind) & lanes;
    return lanes;
}

/// For SMEM and everything else that the wave reads once.
inline bool touch_scalar(Wave& w, const Op& op, u64 address, u32 bytes, AccessKind kind = AccessKind::Read) {
    if (w.group->tally) [[unlikely]]
        counters::on_scalar(w, op, address, bytes, kind);
    if (w.shadow) [[unlikely]]
        return checks::on_scalar(w, op, address, bytes, kind);
    return true;
}

u64 lanes_within_each(const u32* address, u64 lanes, u32 bytes, u32 size);

/// Lanes whose [address, address + bytes) lies within `size`. Here and below, `address` is aligned to 64 bytes.
inline u64 lanes_within(const u32* address, u64 lanes, u32 bytes, u32 size) {
    if (lanes == kAllLanes && size >= bytes && __builtin_reduce_max(load<u32v>(address)) <= size - bytes) [[likely]]
        return lanes;
    return lanes_within_each(address, lanes, bytes, size);
}

/// LDS accesses outside the workgroup's LDS read 0 and are not written, which is what the hardware does; so those lanes are
/// left out of the result, too.
inline u64 lds_lanes(Wave& w, const Op& op, const u32* address, u64 lanes, u32 bytes, AccessKind kind) {
    if (w.group->tally) [[unlikely]]
        counters::on_lds(w, op, address, lanes, bytes, kind);
    if (w.shadow) [[unlikely]]
        lanes &= checks::on_lds(w, op, address, lanes, bytes, kind);
    return lanes_within(address, lanes, bytes, w.group->lds_bytes);
}

/// Scratch accesses outside the lane's own memory stop the kernel unless the checks let it go on without those lanes.
u64 scratch_lanes(Wave& w, const Op& op, const u32* offset, u64 lanes, u32 bytes, AccessKind kind);

/// Where FLAT, GLOBAL and SCRATCH instructions access memory: fills in host addresses of all lanes, wherever they point (global
/// memory, LDS, scratch), and returns the lanes that may go on.
u64 resolve_flat(Wave&, const Op&, u64* address, u32 bytes, AccessKind);
u64 resolve_global(Wave&, const Op&, u64* address, u32 bytes, AccessKind);
u64 resolve_scratch(Wave&, const Op&, u64* address, u32 bytes, AccessKind);
using Resolve = u64 (*)(Wave&, const Op&, u64* address, u32 bytes, AccessKind);

/// Stops the kernel if an address of `lanes` is no multiple of `bytes`: atomics must be aligned.
void require_aligned(const Wave&, const Op&, const u64* address, u64 lanes, u32 bytes);

}  // namespace emu
