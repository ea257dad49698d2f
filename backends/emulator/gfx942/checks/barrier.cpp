// SPDX-License-Identifier: MIT
// The hardware counts waves at a barrier, not lanes: a wave that runs a barrier twice under two halves of EXEC has passed two
// barriers. So each lane's own count is kept; a lane that takes part in a barrier must have taken part in all before.
// Lanes that have left the kernel for good never take part again and are no concern, nor are waves that have ended.
#include <cstring>

#include "shadow.h"

namespace emu::checks {

void begin(BarrierWave&, const Wave&) {}

namespace barrier {

void before(Wave& w, const Op& op) {
    if (!op.inst.row || std::strcmp(op.inst.row->name, "s_barrier")) return;
    BarrierWave& state = w.shadow->barrier;
    u64 missed = 0;
    for (u64 rest = w.exec(); rest; rest &= rest - 1) {
        const int lane = std::countr_zero(rest);
        if (state.lane[lane]++ != state.passed) missed |= u64{1} << lane;
    }
    ++state.passed;
    if (!missed) return;
    const int lane = std::countr_zero(missed);
    report(w, op, kBarrier, lane,
           "the wave has passed " + std::to_string(state.passed - 1) + " barriers, the lane took part in " +
               std::to_string(state.lane[lane] - 1) + ": an earlier barrier was reached by some lanes of the wave only; " +
               std::to_string(std::popcount(missed)) + " lanes");
    for (u32& lane_count : state.lane) lane_count = state.passed;       // say it once
}

}  // namespace barrier
}  // namespace emu::checks
