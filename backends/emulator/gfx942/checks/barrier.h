// SPDX-License-Identifier: MIT
// Barriers that some lanes of a wave reach and others do not.
#pragma once

#include "../wave.h"

namespace emu::checks {

struct BarrierWave {
    u64 absent = 0;  // lanes that an earlier barrier was run without
    u32 op = 0;      // that barrier
    u64 present = 0;
};

namespace barrier {
void before(Wave&, const Op&);
void on_hang(Wave&);
}  // namespace barrier

}  // namespace emu::checks
