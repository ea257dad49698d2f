// SPDX-License-Identifier: MIT
// Wait states that software must leave between instructions, since the hardware does not: hazard_rules.cpp has the rules.
//
// Whether an operation keeps them depends only on the few operations that its wave ran before it. So each sequence is judged
// once: tables remember which ones have been, by a hash of the way that led there.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <unordered_set>
#include <vector>

#include "../wave.h"

namespace emu::checks {

// Operations: no rule asks for more than 19 wait states, and each operation is one or more.
constexpr u32 kHazardWindow = 20;

/// Of a program: sequences that break no rule.
struct HazardTable {
    explicit HazardTable(size_t operations);
    std::vector<std::atomic<u8>> straight;  // by operation: after the kHazardWindow before it
    std::vector<std::atomic<u64>> seen;     // after a jump; a power of two
};

/// Sequences that break one, which each launch reports. Under the launch's lock.
struct HazardLaunch {
    std::unordered_set<u64> reported;
};

struct HazardWave {
    std::array<u32, 32> history = {};  // indices of operations, a ring
    u64 count = 0;                     // operations so far
    u32 previous = kNoOp;
    u32 run = 0;  // operations since the last jump
    u64 way = 0;  // hash of the jumps among the last kHazardWindow operations
};

struct Hazard {
    int required = 0, found = 0;
    const Op* earlier = nullptr;
    std::string text;  // what the two instructions do
};

/// The rule that is broken by most when `op` runs after `recent` (newest first); `required` is 0 if none is.
Hazard find_hazard(const Op& op, u32 classes, const Op* const* recent, const u32* recent_classes, size_t count);

namespace hazards {
void before(Wave&, const Op&);
}  // namespace hazards

}  // namespace emu::checks
