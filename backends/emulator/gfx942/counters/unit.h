// SPDX-License-Identifier: MIT
// A compute unit that runs traced workgroups: who issues when, what waits for what.
#pragma once

#include <vector>

#include "classes.h"
#include "record.h"

namespace emu::counters {

struct UnitOptions {
    double clock = 0;  // Hz
    // Cycles that a line takes of this unit's share of the L2, of the Infinity Cache (both ways) and of the HBM.
    double l2_line = 2, mall_line = 0, stored_line = 0, hbm_line = 0;
};

struct UnitTime {
    double cycles = 0;                               // until the last wave has ended
    double busy[static_cast<int>(Unit::None)] = {};  // of each unit; VALU and matrix: of the busiest SIMD
};

/// All of `groups` start at once. `kinds` by index of the operation.
UnitTime simulate(
    const Program&, const std::vector<Kind>& kinds, const std::vector<const Record*>& groups, const UnitOptions&);

}  // namespace emu::counters
