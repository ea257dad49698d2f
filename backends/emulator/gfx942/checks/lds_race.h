// SPDX-License-Identifier: MIT
// Two waves of a workgroup at the same LDS byte without a barrier between, at least one of them writing, not both atomic.
#pragma once

#include <vector>

#include "../wave.h"

namespace emu {
enum class AccessKind : u8;
}

namespace emu::checks {

struct LdsRaceGroup {
    struct Byte {
        u32 epoch = 0;              // barriers passed when it was last touched, plus one
        u16 readers = 0;            // waves
        u8 writer = 0;              // wave + 1
        bool atomic = false;        // the write was one
        u32 write_op = 0, read_op = 0;
    };
    struct Open {                   // issued, and perhaps not done
        const Op* op;
        u64 lanes;
        u32 bytes;
        AccessKind kind;
        u32 address[kLanes];
    };
    std::vector<Byte> bytes;
    std::vector<std::vector<Open>> open;    // by wave
};

void begin(LdsRaceGroup&, const Workgroup&);
namespace lds_race {
void on_lds(Wave&, const Op&, const u32* address, u64 lanes, u32 bytes, AccessKind);
void before(Wave&, const Op&);      // notices what s_waitcnt waits for
void at_barrier(Workgroup&);
}  // namespace lds_race

}  // namespace emu::checks
