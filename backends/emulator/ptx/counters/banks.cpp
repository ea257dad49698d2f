// SPDX-License-Identifier: MIT
// Sources: CUDA C++ Programming Guide, "Shared Memory" of compute capability 5.x to 9.0 (32 banks of 32 bits, no conflict
// within a word); CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory" (transactions of 32 bytes). That wider
// accesses go by halves and quarters of a warp is what Nsight Compute's wavefronts show.
#include "banks.h"

namespace emu::ptx {

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
    return static_cast<u32>(blocks_touched<32>(address, lanes, bytes, sectors));
}

}  // namespace emu::ptx
