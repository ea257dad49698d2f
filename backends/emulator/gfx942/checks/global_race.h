// SPDX-License-Identifier: MIT
// Two workgroups at the same address of global memory, at least one writing, not both atomic, nothing that orders them.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "../wave.h"

namespace emu {
enum class AccessKind : u8;
}

namespace emu::checks {

struct GlobalShadow;  // in global_race.cpp
struct GlobalPage;

struct GlobalRaceLaunch {
    std::shared_ptr<GlobalShadow> shadow;  // null: only one workgroup
};

struct GlobalRaceGroup {
    struct Page {
        u64 number = ~u64{0};
        GlobalPage* page = nullptr;
    };
    u64 acquired = 0;  // when it last acquired; 0: never
    u64 events = 0;    // releases and acquires so far
    struct Doubt {     // a write over another workgroup's: a race unless it is of the same value
        u64 address, other;
        int lane;
        u32 before;  // what the dword held
    };
    std::array<Page, 64> pages;  // the last ones it used
    std::vector<Doubt> doubts;   // of the instruction that runs
};

void begin(GlobalRaceLaunch&, const Launch&);
void begin(GlobalRaceGroup&);
namespace global_race {
void on_global(Wave&, const Op&, const u64* address, u64 lanes, u32 bytes, AccessKind);
void on_scalar(Wave&, const Op&, u64 address, u32 bytes, AccessKind);
void before(Wave&, const Op&);  // synchronisation: atomics, cache write-backs and invalidations
void after(Wave&, const Op&);
void resolve_doubts(Wave&, const Op&);  // after a write
}  // namespace global_race

}  // namespace emu::checks
