// SPDX-License-Identifier: MIT
// Blocks before their first instruction.
#pragma once

#include "warp.h"

namespace emu::ptx {

/// A cluster with memory of its own.
struct Resident {
    struct Memory {
        std::vector<u8> shared, local;
        std::vector<char> registers;
    };
    Cluster cluster;
    std::vector<Memory> memory;
    bool live = false;
    u32 turns = 0;             // that only read
    std::vector<Warp*> warps;  // of a round
};

/// Cluster `number` of a launch takes a place.
void begin(Resident&, const Launch&, u64 number, Report&, GlobalShadow*);

}  // namespace emu::ptx
