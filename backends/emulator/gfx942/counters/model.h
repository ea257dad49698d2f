// SPDX-License-Identifier: MIT
// From counters to a time on MI300X: what each resource would need alone, a simulated compute unit for how they overlap,
// and how workgroups fill the chip. The assumptions are in docs/emulator_model.md.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "classes.h"
#include "counters.h"
#include "hierarchy.h"

namespace emu::counters {

struct Occupancy {
    u32 groups = 0;  // workgroups a compute unit holds
    u32 waves_per_group = 0;
    double waves_per_simd = 0;
    const char* limit = "";  // "registers", "lds", "groups" or "waves"
};
Occupancy occupancy(const Launch&);

/// How many steps of each wave of this workgroup are to be traced; 0: none.
size_t traced_steps(const Launch&, u64 group);

/// Cycles that an instruction takes the address unit and the L1's data path of its compute unit.
u64 address_cycles(u64 bytes, u64 lines);

/// Sums over the program, of all workgroups: a sample's counts are scaled up.
struct Totals {
    double scale = 1;  // workgroups of the launch per workgroup that ran
    double classes[kClasses] = {};
    double cycles[static_cast<int>(Unit::None)] = {};
    double lds_minimum = 0, lds_bytes = 0;
    double bytes = 0, lines = 0, beyond = 0;  // vector and scalar memory
    std::map<std::string, double> flops;      // by type of the matrix instruction
    Footprint::Counts footprint;
};
Totals totals(const Launch&, const Tally&, const std::vector<Kind>&);

/// Microseconds. Bounds are for all of the chip, perfectly filled, at `clock`.
struct Modelled {
    double total = 0;
    double launch = 0;
    double clock = 0;  // Hz, within the power limit
    double mfma = 0, valu = 0, salu = 0, lds = 0, vmem = 0, l2 = 0, mall = 0, hbm = 0, atomics = 0;
    double compute_units = 0;  // simulated units, all rounds of workgroups
    double latency = 0;        // of that: not explained by the largest bound
    double tail = 0;           // of that: units idle because the workgroups do not fill the last round
    double imbalance = 1;      // factor: workgroups with different numbers of instructions
    double unit_cycles = 0;    // one round on one unit
    double band = 0;           // fraction of the total by which it can be wrong either way
    const char* limit = "";
};
/// `launch` of another kind: `bytes` are filled (from nothing) or copied by a kernel of the runtime.
Modelled model_move(const void* from, const void* to, size_t bytes);
Modelled model(const Launch&, const Tally&, const std::vector<Kind>&, const Totals&, const Traffic&);

}  // namespace emu::counters
