// SPDX-License-Identifier: MIT
// What the checks know of each operation before it runs: made once per program, so that nothing compares names at run time.
#pragma once

#include <memory>
#include <vector>

#include "../wave.h"
#include "flow.h"
#include "hazards.h"

namespace emu::checks {

enum Fact : u16 {
    kCountsVm = 1u << 0,    // increments VM_CNT …
    kCountsLgkm = 1u << 1,  // … LGKM_CNT
    kAnyOrder = 1u << 2,    // comes back in any order: only a count of zero says that it is there
    kWaits = 1u << 3,       // s_waitcnt
    kBarrierOp = 1u << 4,
    kReleases = 1u << 5,    // global memory: what the workgroup did before is visible to whoever …
    kAcquires = 1u << 6,    // … acquires after that
    kReadsVcc = 1u << 7,    // without an operand that says so
    kWritesExec = 1u << 8,  // likewise
    kOutward = 1u << 9,     // what it does is seen outside its lane: stores and atomics
    kMemoryOp = 1u << 10,
    kLdsDma = 1u << 11,     // loads from memory into LDS
    kCompares = 1u << 12,   // compare and swap
    kExchanges = 1u << 13,  // an atomic that writes whatever was there before
    kPieces = 1u << 14,     // moves bytes or shorts side by side: no alignment to speak of
};

constexpr u8 kNoWait = 255;

struct Facts {
    u16 what = 0;
    u8 wait_vm = kNoWait, wait_lgkm = kNoWait;  // s_waitcnt: how many may be left
    u32 hazard = 0;                             // hazard_classes.h
};

struct Plan {
    explicit Plan(size_t operations) : hazards(operations) {}

    std::vector<Facts> facts;              // by operation
    std::vector<definedness::Flow> flows;  // likewise
    u32 lds_grain = 4;                     // bytes of the narrowest access to LDS that the program has, at most a dword
    mutable HazardTable hazards;           // what has been found out about it
};

/// The program's plan, made when it is first asked for.
const Plan& plan_of(const Program&);

/// hazard_classes.cpp
u32 hazard_classes(const Op&);

}  // namespace emu::checks
