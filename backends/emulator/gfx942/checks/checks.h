// SPDX-License-Identifier: MIT
// What the emulator can find wrong with a kernel that runs, and where in a run it looks. Shadow state and rules are behind
// these functions; accesses to memory come in through ops/access.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../wave.h"

namespace emu::checks {

enum Check : u32 {
    kBounds = 1u << 0,  // global, LDS and scratch accesses outside what is there
    kMisaligned = 1u << 1,
    kUninitialised = 1u << 2,  // registers and LDS that nothing was written to
    kLdsRace = 1u << 3,        // two waves, one word, no barrier between
    kWaitcnt = 1u << 4,        // a register used before the s_waitcnt that its load needs
    kBarrier = 1u << 5,        // barriers that some lanes or waves miss
    kHazard = 1u << 6,         // wait states that the hardware does not insert
    kGlobalRace = 1u << 7,     // two workgroups, one address, no synchronisation
    kAll = (1u << 8) - 1,
};

/// "all", "none", or names separated by commas or '+': bounds misaligned uninitialised lds-race waitcnt barrier hazard
/// global-race; a name after '-' is taken away. Throws std::invalid_argument.
u32 parse(const std::string&);
std::string name(Check);

struct Finding {
    Check check;
    std::string message;  // one sentence, with values
    std::string kernel;
    Dim group;
    int wave = -1, lane = -1;
    std::string function;           // the one that the kernel called, if the instruction is in one
    u64 pc = 0;                     // byte offset from the kernel's entry, or the function's
    std::string instruction, file;  // file: empty without line information
    u32 line = 0;
    std::vector<std::string> calls;  // inlined: where its function was called, and that one's caller: "mfma.hip:52"
    std::string allocation;          // which memory, if it is about memory
    std::string other;               // the other side of a race: "wave 3 wrote at mfma.hip:52"
    u64 times = 1;                   // the same check at the same instruction
};

/// As compute-sanitizer words it: what, where, who, which allocation.
std::string text(const Finding&);

std::shared_ptr<LaunchShadow> begin_launch(const Launch&, u32 enabled);
/// Attaches shadows to the group and its waves (registers that the hardware initialises count as written).
std::shared_ptr<GroupShadow> begin_group(Workgroup&);
void before(Wave&, const Op&);  // around every instruction of a checked run
void after(Wave&, const Op&);
void at_barrier(Workgroup&);  // every live wave has arrived
void on_hang(Wave&);          // it has run more instructions than a wave may
std::vector<Finding> end_launch(LaunchShadow&);

}  // namespace emu::checks
