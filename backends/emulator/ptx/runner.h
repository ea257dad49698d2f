// SPDX-License-Identifier: MIT
// Lanes that diverge are splits of their warp: the one that is furthest behind runs, so that they meet again.
#pragma once

#include "warp.h"

namespace emu::ptx {

enum class State : u8 { Done, Waits, Spins, Paused };

/// Runs a warp until it waits. `moved`: whether it executed anything but waiting. `now`: the instruction that throws a
/// Fault. `dice`: of a random schedule, else null. `stuck`: whether the cluster has not gone on for a while.
State run_warp(Warp&, const Program&, Dice*, bool stuck, bool& moved, const Op*& now);

}  // namespace emu::ptx
