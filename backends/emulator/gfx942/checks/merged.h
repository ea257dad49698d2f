// SPDX-License-Identifier: MIT
// Dwords and wider accesses that compilers make of several bytes or shorts, which may lie anywhere.
#pragma once

#include <vector>

#include "../wave.h"

namespace emu::checks {

/// Whether the memory operation `index` moves smaller elements side by side: what it or another load from the same place loads
/// is taken apart, or what it stores was put together, near it and before the code branches.
bool moves_pieces(const std::vector<Op>& ops, u32 index);

}  // namespace emu::checks
