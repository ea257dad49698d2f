// SPDX-License-Identifier: MIT
// What the checks remember beside a running kernel. Each check has a file with its rule; shadow.cpp calls them in turn.
//
// A workgroup runs on one CPU thread, so group and wave state need no lock; what workgroups share is in LaunchShadow.
#pragma once

#include <map>
#include <mutex>

#include "../ops/access.h"
#include "barrier.h"
#include "checks.h"
#include "global_race.h"
#include "hazards.h"
#include "lds_race.h"
#include "plan.h"
#include "uninitialised.h"
#include "waitcnt.h"

namespace emu::checks {

struct LaunchShadow {
    const Launch* launch = nullptr;
    const Plan* plan = nullptr;
    u32 enabled = 0;
    std::mutex mutex;                                 // of findings
    std::map<std::pair<u32, u32>, Finding> findings;  // by check and operation: the first one, and how often
    GlobalRaceLaunch global_race;
    HazardLaunch hazards;

    bool on(Check check) const { return enabled & check; }
};

/// Memory that an access was found to lie in: most accesses go to the same few allocations.
struct BoundsGroup {
    struct Range {
        u64 begin = 0, end = 0;
    };
    std::array<Range, 4> recent;
    unsigned next = 0;
};

struct GroupShadow {
    LaunchShadow* launch = nullptr;
    BoundsGroup bounds;
    LdsRaceGroup lds_race;
    UninitialisedGroup uninitialised;
    GlobalRaceGroup global_race;
    std::vector<std::unique_ptr<WaveShadow>> waves;
};

struct WaveShadow {
    GroupShadow* group = nullptr;
    const Facts* facts = nullptr;              // by operation
    const definedness::Flow* flows = nullptr;  // likewise
    HazardTable* hazard_table = nullptr;
    u32 enabled = 0;
    UninitialisedWave uninitialised;
    WaitcntWave waitcnt;
    HazardWave hazards;
    BarrierWave barrier;
};

inline LaunchShadow& launch_of(Wave& w) { return *w.shadow->group->launch; }
inline bool on(Wave& w, Check check) { return w.shadow->enabled & check; }

/// Records a finding at the running instruction; fills in place, instruction and source line. `lane` -1: the whole wave.
/// `allocation` and `other` as in Finding. With the option `halt` it stops the kernel.
void report(
    Wave&, const Op&, Check, int lane, std::string message, std::string allocation = "", std::string other = "");

/// True if the same check has reported this instruction already, for this workgroup or one before it: it is counted then, and
/// there is no need to put its message together. What is kept is the lowest workgroup's, whichever ran first.
bool repeated(Wave&, const Op&, Check);

/// The same about an operation that is not the running one's wave (a race's other side): "file:line" or "pc 0x40".
std::string where(const Launch&, u32 op_index);

/// "1 lane", "3 lanes".
inline std::string lanes_text(u64 lanes) {
    const int count = std::popcount(lanes);
    return std::to_string(count) + (count == 1 ? " lane" : " lanes");
}

/// bounds.cpp: lanes that may go on. Reports the others.
u64 check_global(Wave&, const Op&, const u64* address, u64 lanes, u32 bytes, AccessKind);
u64 check_lds(Wave&, const Op&, const u32* address, u64 lanes, u32 bytes, AccessKind);
u64 check_scratch(Wave&, const Op&, const u32* offset, u64 lanes, u32 bytes, AccessKind);
bool check_scalar(Wave&, const Op&, u64 address, u32 bytes, AccessKind);

}  // namespace emu::checks
