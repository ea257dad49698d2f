// SPDX-License-Identifier: MIT
// Registers, LDS and scratch memory that nothing was written to.
//
// Like valgrind, a value made of undefined ones is undefined itself and nobody complains until it matters: as an address, in
// a branch or EXEC, or stored to global memory. Compilers copy undefined registers around all the time.
#pragma once

#include <vector>

#include "../wave.h"

namespace emu {
enum class AccessKind : u8;
}

namespace emu::checks {

struct UninitialisedGroup {
    std::vector<u8> lds;  // one byte a byte of LDS: 1 = defined
};

struct UninitialisedWave {
    std::vector<u64> vgpr;    // one bit a lane: 1 = defined; by physical register
    std::vector<u32> origin;  // of its undefined lanes: the read they came from, as index + 1; 0: never written
    u32 sgpr[128] = {};       // one bit a bit, since masks of lanes are put together from parts: 1 = defined
    u32 sgpr_origin[128] = {};
    bool scc = false;
    std::vector<u8> scratch;  // one byte a byte of each lane's scratch memory, lane after lane: 1 = defined
    // of the instruction that runs
    bool settled = false;   // there is nothing left to do after it
    u64 undefined[4] = {};  // by dword of what it reads from LDS or scratch: lanes whose bytes nobody wrote
    u32 dwords_read = 0;
    u64 result = 0, exec = 0;  // bits of a scalar result, and of the EXEC it writes, that are defined
    bool writes_exec = false;
    u32 result_origin = 0;
    bool result_scc = false;
};

void begin(UninitialisedGroup&, const Workgroup&);
void begin(UninitialisedWave&, const Wave&);
namespace uninitialised {
void before(Wave&, const Op&);  // reports where an undefined value matters
void after(Wave&, const Op&);   // propagates
void on_global(Wave&, const Op&, u64 lanes, AccessKind);
void on_lds(Wave&, const Op&, const u32* address, u64 lanes, u32 bytes, AccessKind);
void on_scratch(Wave&, const Op&, const u32* offset, u64 lanes, u32 bytes, AccessKind);
}  // namespace uninitialised

}  // namespace emu::checks
