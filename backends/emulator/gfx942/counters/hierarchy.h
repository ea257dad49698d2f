// SPDX-License-Identifier: MIT
// The caches beyond the compute units: an L2 for each die, and the Infinity Cache before the HBM, which keeps its contents
// from launch to launch.
#pragma once

#include <memory>
#include <vector>

#include "counters.h"

namespace emu::counters {

enum class Level : u8 { L2, Mall, Hbm };

/// Lines of the whole launch.
struct Traffic {
    double l2 = 0;          // that the L2s were asked for
    double loaded[3] = {};  // loads by what served them
    double stored = 0;      // stores that reached an L2
    double written = 0;     // from the L2s to the Infinity Cache
    double evicted = 0;     // from there to the HBM
    double atomics = 0;     // passes of the busiest channel's atomic unit
    double groups = 0;      // simulated
};

/// Runs all that was recorded through the caches, workgroups on their dies in turn and as many at once as fit, and fills in
/// the levels of the traced ones' requests. Workgroups of which only the beginning is known go on like the nearest one that
/// is known as a whole, from where they began. The same on any number of CPU threads.
Traffic simulate_caches(const Launch&, Tally&, u32 groups_a_unit);

/// Filled or copied memory passes through the Infinity Cache, too. Returns the lines that came from and went to the HBM.
struct Moved {
    double loaded = 0, evicted = 0;
};
Moved move_through_cache(const void* from, const void* to, size_t bytes);

/// Nothing of what launches have touched is in the Infinity Cache any more.
void empty_caches();

/// Dies whose caches are simulated, 2 or all of them: a launch can have more requests than are worth the time.
u32 simulated_dies(const Launch&, const Tally&);

}  // namespace emu::counters
