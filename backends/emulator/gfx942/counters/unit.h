// SPDX-License-Identifier: MIT
// A compute unit that runs traced workgroups: who issues when, what waits for what.
#pragma once

#include <vector>

#include "classes.h"
#include "trace.h"

namespace emu::counters {

struct UnitOptions {
    double far_latency = 0;             // cycles from issue to data, of loads that the L1 cannot serve
    double cycles_per_line = 2;         // this unit's share of what lies beyond the L1: a line each so many cycles
};

struct UnitTime {
    double cycles = 0;                  // until the last wave has ended
    double busy[static_cast<int>(Unit::None)] = {};     // of each unit; VALU and matrix: of the busiest SIMD
};

/// All of `groups` start at once. `kinds` by index of the operation.
UnitTime simulate(const Program&, const std::vector<Kind>& kinds, const std::vector<const Trace*>& groups, const UnitOptions&);

}  // namespace emu::counters
