// SPDX-License-Identifier: MIT
// What an access of 64 lanes costs the LDS, and which cache lines one to global memory touches.
#pragma once

#include "../ops/access.h"

namespace emu::counters {

struct LdsCost {
    u32 cycles, minimum;  // with bank conflicts, and as if there were none
};

/// Atomics of several lanes on one word are done one after the other; loads and stores share it.
LdsCost lds_cost(const u32* address, u64 lanes, u32 bytes, AccessKind);

/// The 128-byte lines that [address, address + bytes) of `lanes` touch, each once; at most 128. Returns how many.
int lines_touched(const u64* address, u64 lanes, u32 bytes, u64* lines);

}  // namespace emu::counters
