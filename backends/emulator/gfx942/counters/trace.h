// SPDX-License-Identifier: MIT
// What the waves of a few workgroups executed, in order, for the model of a compute unit.
#pragma once

#include <algorithm>
#include <vector>

#include "../wave.h"

namespace emu::counters {

struct Trace {
    struct Step {
        u32 operation;
        u16 cycles;                 // LDS: that it is busy; global: that the address unit is busy
        u16 beyond;                 // global: lines that come from beyond the L1
    };

    u64 group = 0;
    size_t limit = 0;               // steps a wave
    u64 executed = 0;               // by the whole workgroup, beyond the limit, too
    std::vector<std::vector<Step>> waves;

    void step(u32 wave, u32 operation) {
        auto& steps = waves[wave];
        if (steps.size() < limit) steps.push_back({operation, 0, 0});
    }

    /// What the step just taken costs; instructions with two addresses add twice.
    void cost(u32 wave, u32 operation, u64 cycles, u64 beyond) {
        auto& steps = waves[wave];
        if (steps.empty() || steps.back().operation != operation) return;
        steps.back().cycles = static_cast<u16>(std::min<u64>(steps.back().cycles + cycles, 0xffff));
        steps.back().beyond = static_cast<u16>(std::min<u64>(steps.back().beyond + beyond, 0xffff));
    }
};

}  // namespace emu::counters
