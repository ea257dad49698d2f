// SPDX-License-Identifier: MIT
// What an access of 64 lanes costs the LDS.
#pragma once

#include "../ops/access.h"
#include "core/banks.h"

namespace emu::counters {

/// Atomics of several lanes on one word are done one after the other; loads and stores share it.
BankCost lds_cost(const u32* address, u64 lanes, u32 bytes, AccessKind);

}  // namespace emu::counters
