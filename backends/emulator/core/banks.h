// SPDX-License-Identifier: MIT
// Banks of the memory on chip (shared memory, LDS), and the blocks of global memory that lanes touch. `address` has an element for
// each bit of `lanes`.
#pragma once

#include <algorithm>
#include <bit>

#include "scalars.h"

namespace emu {

constexpr u32 kBanks = 32;  // of 4 bytes, on both vendors' GPUs

struct BankCost {
    u32 cycles, minimum;  // with bank conflicts, and as if there were none
};

/// Most words in one bank, each word counted once unless `serial`.
template <class Address, class Lanes>
u32 busiest(const Address* address, Lanes lanes, u32 bytes, bool serial) {
    Address words[kBanks][8 * sizeof(Lanes)];
    u32 load[kBanks] = {}, most = 1;
    const u32 count = std::max(bytes / 4, 1u);
    for (; lanes; lanes &= lanes - 1) {
        const Address first = address[std::countr_zero(lanes)] / 4;
        for (Address word = first; word < first + count; ++word) {
            Address* const mine = words[word % kBanks];
            u32& number = load[word % kBanks];
            if (!serial && std::find(mine, mine + number, word) != mine + number) continue;
            mine[number++] = word;
            most = std::max(most, number);
        }
    }
    return most;
}

/// The blocks of `kBlock` bytes that [address, address + bytes) of the lanes touch, each once; `bytes` are no more than a block.
/// Returns how many: at most two a lane.
template <u64 kBlock, class Lanes>
int blocks_touched(const u64* address, Lanes lanes, u32 bytes, u64* blocks) {
    int number = 0;
    u64 last = ~u64{0};
    bool rising = true;
    const auto touch = [&](u64 block) {
        if (block == last) return;
        rising = rising && (last == ~u64{0} || block > last);
        blocks[number++] = last = block;
    };
    for (; lanes; lanes &= lanes - 1) {
        const u64 first = address[std::countr_zero(lanes)];
        touch(first / kBlock);
        touch((first + bytes - 1) / kBlock);
    }
    if (rising) return number;
    std::sort(blocks, blocks + number);
    return static_cast<int>(std::unique(blocks, blocks + number) - blocks);
}

}  // namespace emu
