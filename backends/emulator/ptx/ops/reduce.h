// SPDX-License-Identifier: MIT
// Reductions by atomics and bulk copies: the next value of a word in memory.
#pragma once

#include <string_view>

#include "../types.h"

namespace emu::ptx {

enum class Atomic : u8 { Add, Min, Max, And, Or, Xor, Exch, Cas, Inc, Dec };

/// Each element of `bytes` at `to` with that at `from`, one by one, each of them atomic. False: the emulator has no such
/// reduction of that type, and nothing has been done.
bool reduce(u8* to, const u8* from, u64 bytes, Atomic kind, std::string_view type);

}  // namespace emu::ptx
