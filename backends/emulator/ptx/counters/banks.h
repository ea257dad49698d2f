// SPDX-License-Identifier: MIT
// What an access of a warp costs shared memory, and which sectors one to global memory touches.
#pragma once

#include "../types.h"
#include "core/banks.h"

namespace emu::ptx {

/// 32 banks of 4 bytes. Accesses of up to 4 bytes are served a warp at a time, of 8 bytes half a warp, of 16 a quarter; lanes
/// that read or write the same word share it. `serial`: they do not (atomics).
BankCost bank_cost(const u64* address, u32 lanes, u32 bytes, bool serial);

/// Sectors of 32 bytes that [address, address + bytes) of `lanes` touch, each once.
u32 sectors_touched(const u64* address, u32 lanes, u32 bytes);

}  // namespace emu::ptx
