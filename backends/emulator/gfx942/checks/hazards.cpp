// SPDX-License-Identifier: MIT
#include "hazards.h"

#include "shadow.h"

namespace emu::checks {

void begin(HazardTable&, const Launch&) {}
void begin(HazardWave&, const Wave&) {}

namespace hazards {

void before(Wave&, const Op&) {}
void after(Wave& w, const Op&) { ++w.shadow->hazards.now; }

}  // namespace hazards
}  // namespace emu::checks
