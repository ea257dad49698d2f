// SPDX-License-Identifier: MIT
// Barriers that some lanes of a wave reach and others do not.
#pragma once

#include "../wave.h"

namespace emu::checks {

struct BarrierWave {
    u32 passed = 0;                 // barriers of the wave
    u32 lane[kLanes] = {};          // barriers that the lane took part in
};

void begin(BarrierWave&, const Wave&);
namespace barrier {
void before(Wave&, const Op&);
}

}  // namespace emu::checks
