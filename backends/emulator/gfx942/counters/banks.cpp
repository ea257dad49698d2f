// SPDX-License-Identifier: MIT
#include "banks.h"

namespace emu::counters {
namespace {

// Lanes that the LDS serves in the same cycle (128 bytes: AMD CDNA 3 white paper) if their banks allow it, as masks: in order,
// but for 16-byte loads, which go eight lanes at a time like this (measured on MI300 by others; tests/kernels/hip/test_tile.py).
struct Phases {
    u64 lanes[8];
    int count;
};

constexpr Phases in_order(int together) {
    Phases result{};
    result.count = kLanes / together;
    for (int i = 0; i < result.count; ++i) result.lanes[i] = ((u64{1} << together) - 1) << (i * together);
    return result;
}

constexpr Phases loads_of_16() {
    Phases result{};
    constexpr u64 kFirst[] = {0x00f0000f, 0x000f00f0, 0xf0000f00, 0x0f00f000};
    for (int i = 0; i < 8; ++i) result.lanes[i] = kFirst[i % 4] << (i / 4 * 32);
    result.count = 8;
    return result;
}

constexpr Phases kBy32 = in_order(32), kBy16 = in_order(16), kBy8 = in_order(8), kLoads16 = loads_of_16();

const Phases& phases(u32 bytes, AccessKind kind) {
    if (bytes > 8) return kind == AccessKind::Read ? kLoads16 : kBy8;
    return bytes > 4 ? kBy16 : kBy32;
}

// All lanes of each phase in banks of their own: nothing to count. True for almost every access of a good kernel.
bool conflict_free(const u32* address, u32 bytes, AccessKind kind) {
    const u32 units = kBanks * 4 / bytes;
    alignas(64) u32 bit[kLanes];
    u32 odd = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        bit[lane] = 1u << (address[lane] / bytes % units);
        odd |= address[lane] % bytes;
    }
    if (odd) return false;
    const u32 all = units == kBanks ? ~0u : (1u << units) - 1;
    if (bytes == 16 && kind == AccessKind::Read) {
        u32 quad[16];
        for (int i = 0; i < 16; ++i) quad[i] = bit[4 * i] | bit[4 * i + 1] | bit[4 * i + 2] | bit[4 * i + 3];
        u32 least = all;
        for (int half = 0; half < 16; half += 8)
            least &= (quad[half] | quad[half + 5]) & (quad[half + 1] | quad[half + 4]) &
                     (quad[half + 2] | quad[half + 7]) & (quad[half + 3] | quad[half + 6]);
        return least == all;
    }
    for (int first = 0; first < kLanes; first += static_cast<int>(units)) {
        u32 seen = 0;
        for (u32 lane = 0; lane < units; ++lane) seen |= bit[static_cast<u32>(first) + lane];
        if (seen != all) return false;
    }
    return true;
}

}  // namespace

BankCost lds_cost(const u32* address, u64 lanes, u32 bytes, AccessKind kind) {
    const Phases& all = phases(bytes, kind);
    const u32 count = static_cast<u32>(all.count);
    const bool even = bytes == 4 || bytes == 8 || bytes == 16;
    if (lanes == kAllLanes && even && conflict_free(address, bytes, kind)) return {count, count};
    BankCost cost{0, 0};
    for (u32 i = 0; i < count; ++i) {
        const u64 now = lanes & all.lanes[i];
        if (!now) continue;
        cost.minimum += 1;
        cost.cycles += busiest(address, now, bytes, kind == AccessKind::Atomic);
    }
    return cost;
}

}  // namespace emu::counters
