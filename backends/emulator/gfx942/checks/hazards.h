// SPDX-License-Identifier: MIT
// Wait states that software must leave between instructions (ISA guide, "Manually Inserted Wait States"; MFMA tables).
#pragma once

#include <vector>

#include "../wave.h"

namespace emu::checks {

struct HazardTable {
    int unused = 0;
};

struct HazardWave {
    u64 now = 0;                    // wait states since the wave began
};

void begin(HazardTable&, const Launch&);
void begin(HazardWave&, const Wave&);
namespace hazards {
void before(Wave&, const Op&);
void after(Wave&, const Op&);
}  // namespace hazards

}  // namespace emu::checks
