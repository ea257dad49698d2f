// SPDX-License-Identifier: MIT
// What a kernel did, counted instruction by instruction of its program, one tally a CPU thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../wave.h"
#include "footprint.h"
#include "record.h"

namespace emu::counters {

/// One memory instruction of the program, all its executions together.
struct Memory {
    u64 lanes = 0;    // that took part
    u64 bytes = 0;    // they asked for
    u64 lines = 0;    // global: 128-byte lines touched, execution by execution
    u64 beyond = 0;   // global: of those, what the L1 did not have; stores and atomics: all
    u64 cycles = 0;   // LDS: with bank conflicts
    u64 minimum = 0;  // LDS: without any
};

struct Patterns;  // addresses of an instruction's last executions and what they cost

/// A finished workgroup and how many instructions its waves ran.
struct Work {
    u64 group = 0, executed = 0;
};

struct Tally {
    std::vector<u64> executed;   // by index of the operation
    std::vector<Memory> memory;  // likewise
    std::vector<std::unique_ptr<Patterns>> patterns;
    std::vector<Work> work;
    std::vector<std::unique_ptr<Record>> records;
    Footprint footprint;
    u64 groups = 0, waves = 0;
    std::vector<u32> begun;  // of a sample: by wave, after how many requests the other workgroups ended
    const std::vector<u32>* prefix = nullptr;  // that, while they run; empty: workgroups run to their ends

    explicit Tally(size_t operations);
    Tally(Tally&&) noexcept;
    ~Tally();
    void add(Tally&&);
    /// Only the records: what workgroups did of which the beginning alone was run counts nowhere else.
    void add_records(Tally&&);
};

/// Which workgroups run: all, or `Launch::sampled` of them, spread over the grid.
u64 groups_run(const Launch&);
u64 group_at(const Launch&, u64 index);

/// After a sample of the workgroups ran: the others whose beginnings the model of the caches needs, and where they end.
std::vector<u64> groups_begun(const Launch&, const Tally&);

/// How many requests of each wave show where each of its instructions begins.
std::vector<u32> prefix_of(const Tally&);

/// A workgroup begins or has ended on this thread. What begins may be one of those that are traced.
void begin_group(Tally&, Workgroup&);
void end_group(Tally&, const Workgroup&);

/// Everything about a finished launch as a JSON object: instruction classes, issue cycles, bank conflicts, coalescing,
/// registers, occupancy, and the modelled time with what it is made of.
std::string report(const Launch&, Tally&&, double host_seconds);

/// With the option `keep`: the modelled times (microseconds) of the launches since the last call of `forget`, with these
/// numbers of the model changed: "hbm=4e12 launch=2e-6". Throws std::invalid_argument.
std::vector<double> modelled_again(const std::string& changes);
void forget();

/// The same of a fill (`from` is null) or a copy from device memory to device memory, which are launches like others.
std::string report_move(const char* what, const void* from, const void* to, size_t bytes);

}  // namespace emu::counters
