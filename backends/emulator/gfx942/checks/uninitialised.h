// SPDX-License-Identifier: MIT
// Registers and LDS that nothing was written to.
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
    std::vector<u8> lds;            // one byte a byte of LDS: 1 = written
};

struct UninitialisedWave {
    std::vector<u64> vgpr;          // one bit a lane: 1 = defined; by physical register
    std::vector<u32> origin;        // of its undefined lanes: the LDS read they came from, as index + 1; 0: never written
    bool sgpr[128] = {};            // true = defined
    u32 sgpr_origin[128] = {};
    bool scc = false;
    u64 lds_undefined = 0;          // lanes whose running LDS read met bytes that nobody wrote
};

void begin(UninitialisedGroup&, const Workgroup&);
void begin(UninitialisedWave&, const Wave&);
namespace uninitialised {
void before(Wave&, const Op&);      // reports where an undefined value matters
void after(Wave&, const Op&);       // propagates
void on_lds(Wave&, const Op&, const u32* address, u64 lanes, u32 bytes, AccessKind);
}  // namespace uninitialised

}  // namespace emu::checks
