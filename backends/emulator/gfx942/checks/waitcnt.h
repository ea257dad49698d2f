// SPDX-License-Identifier: MIT
// Registers whose load is still under way: VM_CNT and LGKM_CNT, as s_waitcnt counts them (ISA guide, "Data dependency
// resolution").
#pragma once

#include <deque>
#include <vector>

#include "../wave.h"

namespace emu::checks {

struct WaitcntWave {
    struct Pending {
        Registers registers;        // that will be written; count 0: a store
        u32 op = 0;
        bool in_order = true;       // false: scalar loads, which come back in any order
    };
    std::deque<Pending> vm, lgkm;
    std::vector<u8> vgpr;           // how many loads are under way for a register
    u8 sgpr[128] = {};
};

void begin(WaitcntWave&, const Wave&);
namespace waitcnt {
void before(Wave&, const Op&);
void after(Wave&, const Op&);
}  // namespace waitcnt

}  // namespace emu::checks
