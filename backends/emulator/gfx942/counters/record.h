// SPDX-License-Identifier: MIT
// What one workgroup did, for the models of the caches and of a compute unit: the lines that its waves ask the L2 for, and of
// some workgroups every instruction in order.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "../wave.h"
#include "footprint.h"

namespace emu::counters {

/// The vector L1 of a compute unit: 4 sets of 64 lines, indexed by address bits 7 and 8 (nod-ai's guide), least recently used.
/// Workgroups that share it have their parts of each set.
class L1 {
public:
    explicit L1(u32 sharers = 1) : ways_(std::max(kWays / std::max(sharers, 1u), 1u)) {
        std::memset(tags_, 0xff, sizeof tags_);
    }

    /// Whether it has the line; it has it afterwards.
    bool load(u64 line) {
        u64* const set = tags_[line % kSets];
        if (set[0] == line) return true;
        u64* const place = std::find(set, set + ways_ - 1, line);
        const bool hit = *place == line;
        std::memmove(set + 1, set, static_cast<size_t>(place - set) * sizeof *set);
        set[0] = line;
        return hit;
    }

private:
    static constexpr u32 kSets = 4, kWays = 64;
    u32 ways_;
    u64 tags_[kSets][kWays];
};

/// One line that an instruction wants from beyond the L1.
struct Request {
    u64 line : 40;
    u64 operation : 16;
    u64 halves : 2;  // of the line that it touches: 64 bytes each, as they go to the memory
    u64 passes : 6;  // atomics: lanes that meet at one word, one after the other
};
static_assert(sizeof(Request) == 8);
constexpr u32 kNamedOperations = (1u << 16) - 1;

struct Step {
    u32 operation = 0;
    u16 cycles = 0;    // LDS: that its banks are busy; global: that the address unit is busy
    u16 to_lds = 0;    // loads that go to the LDS: that its banks are busy
    u32 requests = 0;  // global: the first of them among the wave's, and how many
    u16 count = 0;
    u16 bytes = 0;  // LDS: of all lanes
};

struct WaveRecord {
    std::vector<Request> requests;
    std::vector<Step> steps;
    std::vector<u8> levels;  // by request: what served it, filled in by the model of the caches
    bool cut = false;        // there were more requests than are kept
};

struct Record {
    u64 group = 0, executed = 0;               // by the whole workgroup
    size_t steps = 0;                          // kept of each wave; 0: the workgroup is not traced
    size_t requests = 0;                       // kept of each wave
    const std::vector<u32>* prefix = nullptr;  // by wave: ends after so many requests. Null: runs to its end
    std::vector<WaveRecord> waves;
    L1 l1;

    void step(u32 wave, u32 operation) {
        auto& kept = waves[wave].steps;
        if (kept.size() < steps) kept.push_back({operation, 0, 0, static_cast<u32>(waves[wave].requests.size()), 0, 0});
    }

    /// The step just taken, if it is this operation and kept.
    Step* last(u32 wave, u32 operation) {
        auto& kept = waves[wave].steps;
        return kept.empty() || kept.back().operation != operation ? nullptr : &kept.back();
    }
};

}  // namespace emu::counters
