// SPDX-License-Identifier: MIT
// Sources: CUDA C++ Programming Guide, "Shared Memory" of compute capability 5.x to 9.0 (32 banks of 32 bits, no conflict
// within a word); CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory" (transactions of 32 bytes). That wider
// accesses go by halves and quarters of a warp is what Nsight Compute's wavefronts show.
#include "banks.h"

#include <algorithm>

namespace emu::ptx {
namespace {

constexpr u32 kBanks = 32, kSector = 32;

// Most words in one bank, each word counted once unless `serial`.
u32 busiest(const u64* address, u32 lanes, u32 bytes, bool serial) {
    u64 words[kBanks][kLanes];
    u32 load[kBanks] = {}, most = 1;
    each_lane(lanes, [&](int lane) {
        const u64 first = address[lane] / 4, end = (address[lane] + bytes + 3) / 4;
        for (u64 word = first; word < end; ++word) {
            u64* const mine = words[word % kBanks];
            u32& number = load[word % kBanks];
            if (!serial && std::find(mine, mine + number, word) != mine + number) continue;
            mine[number++] = word;
            most = std::max(most, number);
        }
    });
    return most;
}

}  // namespace

BankCost bank_cost(const u64* address, u32 lanes, u32 bytes, bool serial) {
    const u32 together = bytes <= 4 ? kLanes : bytes <= 8 ? kLanes / 2 : kLanes / 4;
    const u32 width = std::max(bytes, 4u), places = kBanks * 4 / width;
    BankCost cost{0, 0};
    for (u32 first = 0; first < kLanes; first += together) {
        const u32 now = lanes & static_cast<u32>(((u64{1} << together) - 1) << first);
        if (!now) continue;
        // All lanes in banks of their own: nothing to count. True for almost every access of a good kernel.
        u32 taken = 0;
        each_lane(now, [&](int lane) { taken |= 1u << (address[lane] / width % places); });
        cost.minimum += 1;
        cost.cycles += std::popcount(taken) == std::popcount(now) ? 1 : busiest(address, now, bytes, serial);
    }
    return cost;
}

u32 sectors_touched(const u64* address, u32 lanes, u32 bytes) {
    u64 sectors[2 * kLanes];
    u32 number = 0;
    bool rising = true;
    u64 last = ~u64{0};
    each_lane(lanes, [&](int lane) {
        for (u64 sector = address[lane] / kSector; sector <= (address[lane] + bytes - 1) / kSector; ++sector) {
            if (sector == last || number == 2 * kLanes) continue;
            rising = rising && (last == ~u64{0} || sector > last);
            sectors[number++] = last = sector;
        }
    });
    if (rising) return number;
    std::sort(sectors, sectors + number);
    return static_cast<u32>(std::unique(sectors, sectors + number) - sectors);
}

}  // namespace emu::ptx
