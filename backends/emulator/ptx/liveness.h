// SPDX-License-Identifier: MIT
// Where the registers of a kernel lie. PTX has a name for each value, thousands of them; few are alive at a time.
#pragma once

#include "source.h"

namespace emu::ptx {

struct Slots {
    std::vector<i32> offset;  // of each register, in a warp's registers; -1: it is never used
    u32 bytes = 0;
};

/// Registers that are never alive together share a place. Lanes that diverge do not disturb each other: each has its own part
/// of every place, and writes no other.
Slots assign_slots(const Function&);

/// What a statement reads and writes, as register numbers. A register that may keep its value (the guard is false, or only a
/// part is written) is read as well.
struct Effects {
    std::vector<u32> reads, writes;
};
Effects effects(const Statement&);

}  // namespace emu::ptx
