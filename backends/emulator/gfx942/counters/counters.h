// SPDX-License-Identifier: MIT
// What a kernel did, counted instruction by instruction of its program, one tally a CPU thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../wave.h"

namespace emu::counters {

/// One memory instruction of the program.
struct Memory {
    u64 lanes = 0;                  // lanes that took part, all executions together
    u64 bytes = 0;                  // they asked for
    u64 lines = 0;                  // 128-byte lines touched (global), summed over executions
    u64 cycles = 0;                 // LDS: cycles with bank conflicts
    u64 minimum = 0;                // LDS: cycles without any
};

struct Tally {
    std::vector<u64> executed;      // by index of the operation
    std::vector<Memory> memory;     // likewise
    u64 groups = 0, waves = 0;

    explicit Tally(size_t operations) : executed(operations), memory(operations) {}
    void add(const Tally&);
};

/// Everything about a finished launch as a JSON object: instruction classes, issue cycles, bank conflicts, coalescing,
/// registers, occupancy, and the modelled time with what it is made of.
std::string report(const Launch&, const Tally&, double host_seconds);

}  // namespace emu::counters
