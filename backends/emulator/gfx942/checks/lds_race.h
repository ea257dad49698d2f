// SPDX-License-Identifier: MIT
// Two waves of a workgroup at the same place in LDS without a barrier between, at least one of them writing, not both atomic;
// and a wave at a place where its own load from memory to LDS is still under way.
#pragma once

#include <vector>

#include "../wave.h"

namespace emu {
enum class AccessKind : u8;
}

namespace emu::checks {

struct LdsRaceGroup {
    struct Cell {
        u64 state = 0;  // what touched it since which barrier: see Touched in lds_race.cpp
        u32 write_op = 0, read_op = 0;
    };
    struct Open {  // issued, and perhaps not done
        const Op* op;
        u64 lanes, sequence;   // which of the instructions that its counter counts
        u32 bytes, low, high;  // all of it lies in [low, high)
        AccessKind kind;
        alignas(64) u32 address[kLanes];
    };
    struct Queue {
        u64 issued = 0, any_order = 0;  // the last instruction that comes back in any order; 0: none is under way
        std::vector<Open> open;
    };
    struct Queues {
        Queue vm, lgkm;
    };
    struct Doubt {  // a write over another wave's: a race unless it is of the same value
        u32 cell, address;
        int lane;
        u64 before;  // what the cell held
    };
    std::vector<Cell> cells;
    u32 grain_shift = 2;  // bytes of a cell, as a power of two
    std::vector<Queues> waves;
    std::vector<Doubt> doubts;  // of the instruction that runs
};

void begin(LdsRaceGroup&, const Workgroup&, u32 grain);
namespace lds_race {
void on_lds(Wave&, const Op&, const u32* address, u64 lanes, u32 bytes, AccessKind);
void before(Wave&, const Op&);  // notices what s_waitcnt waits for
void after(Wave&, const Op&);   // counts, and looks at what was written
void at_barrier(Workgroup&);
}  // namespace lds_race

}  // namespace emu::checks
