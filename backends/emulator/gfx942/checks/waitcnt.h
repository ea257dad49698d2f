// SPDX-License-Identifier: MIT
// Registers whose load is still under way: VM_CNT and LGKM_CNT, as s_waitcnt counts them (ISA guide, "Data dependency
// resolution").
#pragma once

#include <vector>

#include "../wave.h"

namespace emu::checks {

struct WaitcntWave {
    struct Pending {
        Registers registers;  // that will be written; count 0: a store
        u32 op;
        bool in_order;  // false: scalar loads and FLAT, which come back in any order
    };
    std::vector<Pending> vm, lgkm;    // oldest first
    u64 vgpr[16] = {}, sgpr[2] = {};  // one bit a register: a load into it is under way
};

void begin(WaitcntWave&);
namespace waitcnt {
void before(Wave&, const Op&);
void after(Wave&, const Op&);
}  // namespace waitcnt

}  // namespace emu::checks
