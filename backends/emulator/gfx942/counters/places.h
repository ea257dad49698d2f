// SPDX-License-Identifier: MIT
// Where a launch's memory lies on the device that is modelled. Host addresses differ from process to process, and what caches
// hold depends on addresses; so every allocation gets a place that follows from the launch alone.
#pragma once

#include <vector>

#include "../wave.h"

namespace emu::counters {

class Places {
public:
    /// Of host memory [begin, end), whose first byte lies at `base`.
    struct Range {
        u64 begin = 0, end = 0, base = 0;
    };

    Places() = default;
    /// All that is allocated or registered now: what the kernel's arguments point to comes first, in their order, then the
    /// arguments, then the rest in the order of allocation. Ranges that overlap are one.
    explicit Places(const Launch&);

    /// The range that holds a host address. Memory that nobody registered stays where it is, up to its neighbours.
    Range of(u64 address) const;

    /// The range that holds an address of the modelled device; an empty one if none does.
    Range on_device(u64 address) const;

private:
    std::vector<Range> ranges_;  // by begin
    std::vector<Range> by_base_;
};

}  // namespace emu::counters
