// SPDX-License-Identifier: MIT
// The hardware counts waves at a barrier, not lanes: a wave that runs a barrier under half of EXEC has passed it with all its
// lanes. So lanes that a barrier was run without are remembered; when one of them goes on to do something that is seen outside
// of it, it has skipped that barrier. Lanes that have left the kernel for good do no such thing and are no concern, nor are
// waves that have ended.
#include "shadow.h"

namespace emu::checks {
namespace {

std::string which_lanes(u64 lanes) {
    const int first = std::countr_zero(lanes), last = 63 - std::countl_zero(lanes);
    const bool all = std::popcount(lanes) == last - first + 1;
    if (first == last) return "lane " + std::to_string(first);
    return lanes_text(lanes) + (all ? " (" : ", the first and last of them ") + std::to_string(first) +
           (all ? " to " : " and ") + std::to_string(last) + (all ? ")" : "");
}

void complain(Wave& w, const Op& op, u64 skipped) {
    BarrierWave& state = w.shadow->barrier;
    const Launch& launch = *w.group->launch;
    const Op& barrier = launch.program->ops[state.op];
    const bool again = op.index == state.op;
    report(
        w, barrier, kBarrier, std::countr_zero(skipped),
        std::string("the barrier was run by ") + which_lanes(state.present) + " of the wave; " + which_lanes(skipped) +
            " skipped it and went on",
        "", (again ? "they came to it later: " : "to: ") + disassemble(op.inst) + " at " + where(launch, op.index));
    state.absent = 0;
}

}  // namespace

namespace barrier {

void before(Wave& w, const Op& op) {
    BarrierWave& state = w.shadow->barrier;
    const u16 what = w.shadow->facts[op.index].what;
    if (state.absent && what & (kOutward | kBarrierOp)) [[unlikely]] {
        if (const u64 skipped = w.exec() & state.absent) complain(w, op, skipped);
    }
    if (!(what & kBarrierOp)) return;
    state.present = w.exec() & w.initial_exec;
    const u64 missing = w.initial_exec & ~state.present;
    if (missing != state.absent) state.op = op.index;
    state.absent = state.present ? missing : 0;
}

// Waves that end are not waited for; one that never ends keeps the others waiting.
void on_hang(Wave& w) {
    const std::vector<Op>& ops = w.group->launch->program->ops;
    std::string waiting;
    int count = 0;
    for (const Wave& other : w.group->waves) {
        if (other.state != Wave::AtBarrier) continue;
        if (!count++) waiting = disassemble(ops[other.current].inst) + " at " + where(*w.group->launch, other.current);
    }
    report(
        w, ops[w.current], kBarrier, -1,
        "the wave has run " + std::to_string(w.executed) + " instructions and does not end" +
            (count
                 ? "; " + std::to_string(count) + (count == 1 ? " wave waits" : " waves wait") + " for it at a barrier"
                 : ""),
        "", count ? "waiting: " + waiting : "");
}

}  // namespace barrier
}  // namespace emu::checks
