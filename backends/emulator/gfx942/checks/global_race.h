// SPDX-License-Identifier: MIT
// Two workgroups at the same address of global memory, at least one writing, not both atomic, nothing that orders them.
#pragma once

#include <memory>
#include <vector>

#include "../wave.h"

namespace emu {
enum class AccessKind : u8;
}

namespace emu::checks {

struct GlobalShadow;                // in global_race.cpp

struct GlobalRaceLaunch {
    std::shared_ptr<GlobalShadow> shadow;
};

struct GlobalRaceGroup {
    u64 acquired = 0;
};

void begin(GlobalRaceLaunch&, const Launch&);
void begin(GlobalRaceGroup&, const Workgroup&);
namespace global_race {
void on_global(Wave&, const Op&, const u64* address, u64 lanes, u32 bytes, AccessKind);
void after(Wave&, const Op&);       // synchronisation: atomics, cache write-backs and invalidations
}  // namespace global_race

}  // namespace emu::checks
