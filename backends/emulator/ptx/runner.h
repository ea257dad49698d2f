// SPDX-License-Identifier: MIT
// Lanes that diverge are splits of their warp: the one that is furthest behind runs, so that they meet again.
#pragma once

#include <algorithm>

#include "warp.h"

namespace emu::ptx {

enum class State : u8 { Done, Waits, Spins, Paused };

/// One warp, until it waits. `moved`: whether it executed anything but waiting.
class Runner {
public:
    /// `dice`: of a random schedule, else null. `stuck`: whether the cluster has not gone on for a while.
    Runner(Warp& warp, const Program& program, Dice* dice, bool stuck)
        : w_(warp), program_(program), checks_(program.watched ? warp.block->checks() : nullptr),
          counts_(warp.block->cluster->tally ? warp.block->cluster->tally->executed.data() : nullptr), dice_(dice),
          stuck_(stuck) {}

    State run(bool& moved);

    const Op* now = nullptr;

private:
    State go_on(bool& moved);
    /// The split that runs next: the one furthest behind that is not parked. Splits at one place become one.
    size_t choose_split();
    /// Those at the place of a split that are not parked become one with it; where it is then.
    size_t join(size_t best);
    /// All wait for each other: those at one place go on, if there is a place with all that it waits for.
    size_t unpark();
    size_t merge(size_t at);
    u32 wanted(const Op& op, u32 lanes) const;
    /// Whether all lanes that execute it together are here; else they wait.
    bool complete(Split& split, const Op& op, u32 mask);
    u32 next_other(size_t chosen) const;
    bool behind(const Split& a, const Split& b) const { return w_.calls ? w_.calls->before(a, b) : a.pc < b.pc; }
    bool may_run(const Split& split) const { return !split.parked && !(split.lanes & asked_); }
    bool others_may_run() const;
    Warp::Retried& retried(const Split& split) const { return w_.retried[std::countr_zero(split.lanes)]; }

    Warp& w_;
    const Program& program_;
    Checks* const checks_;  // of registers: null for a program without wgmma
    u64* const counts_;     // of the program's instructions, or null
    Dice* const dice_;
    const bool stuck_;
    u32 asked_ = 0;  // lanes that have been told "not yet" in this turn
    u32 ahead_ = 0;  // instructions that a split runs though others are behind it
    bool forced_ = false;
    bool met_ = false;  // the split is the last one of those that wait for each other
};

}  // namespace emu::ptx
