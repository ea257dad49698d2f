// SPDX-License-Identifier: MIT
#include "runner.h"

#include <algorithm>
#include <cstdio>

namespace emu::ptx {
namespace {

constexpr u32 kTurn = 50'000;     // instructions of a warp before the next one of its block
constexpr u32 kLoop = 64;         // instructions of a loop that asks again and again
constexpr u32 kPatience = 2'000;  // jumps backwards of a split before another one of its warp gets a turn,
constexpr u32 kGranted = 256;     // of so many instructions: as many as a lock is held for

class Runner {
public:
    Runner(Warp& warp, const Program& program, Dice* dice, bool stuck)
        : w_(warp), program_(program), checks_(program.watched ? warp.block->checks() : nullptr),
          counts_(warp.block->cluster->tally ? warp.block->cluster->tally->executed.data() : nullptr), dice_(dice),
          stuck_(stuck) {}

    State go_on(bool& moved);

    const Op* now = nullptr;

private:
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
    u32 asked_ = 0;        // lanes that have been told "not yet" in this turn
    u32 ahead_ = 0;        // instructions that a split runs though others are behind it
    bool forced_ = false;  // the next split is not the one furthest behind
    u32 granted_ = 0;      // a lane that may go on though others are behind it, for so many instructions:
    u32 grant_ = 0;
    bool met_ = false;  // the split is the last one of those that wait for each other
};

State Runner::go_on(bool& moved) {
    u32 left = dice_ ? dice_->turn() : kTurn;
    while (!w_.splits.empty()) {
        if (asked_ && !others_may_run()) return State::Spins;
        const size_t chosen = choose_split();
        Split& split = w_.splits[chosen];
        const u32 limit = ahead_ || granted_ ? ~u32{0} : next_other(chosen);
        if (ahead_) left = std::min(left, ahead_);
        u32 rest = 0;  // of the warp's turn, behind what is granted
        if (granted_ && left > grant_) rest = left - grant_, left = grant_;
        u32 pc = split.pc;
        for (;;) {
            const Op& op = program_.ops[pc];
            now = &op;
            u32 mask = split.lanes;
            if (op.guard >= 0) {
                const u32 p = w_.predicate(op.guard);
                mask &= op.guard_negated ? ~p : p;
            }
            if (!mask) {
                ++pc;
            } else {
                if (op.together && !complete(split, op, mask)) {
                    split.pc = pc;
                    split.parked = !std::exchange(met_, false);
                    break;
                }
                w_.mask = mask;
                w_.op = &op;
                if (op.watched >= 0 && checks_) checks_->registers(w_, op);
                const Flow flow = op.run(w_, op);
                w_.lasting += op.lasting;
                if (counts_ && flow != Flow::Again) ++counts_[op.statement];
                if (flow == Flow::Next) {
                    ++pc;
                    ++w_.executed;
                    moved = true;
                } else if (flow == Flow::Jump) {
                    ++w_.executed;
                    moved = true;
                    const auto target = static_cast<u32>(op.target);
                    const bool backwards = target <= pc;
                    if (mask == split.lanes) {
                        pc = target;
                    } else {
                        split.pc = pc + 1;
                        split.lanes &= ~mask;
                        w_.splits.push_back({target, mask, false});
                        break;
                    }
                    if (backwards && w_.splits.size() > 1 && ++w_.patience == kPatience) {
                        // It may wait for lanes that are further on: they get a turn.
                        split.pc = pc;
                        std::rotate(
                            w_.splits.begin(), w_.splits.begin() + static_cast<std::ptrdiff_t>(chosen) + 1,
                            w_.splits.end());
                        forced_ = true;
                        w_.patience = 0;
                        break;
                    }
                } else if (flow == Flow::Exit) {
                    moved = true;
                    w_.alive &= ~mask;
                    if (mask == split.lanes) w_.splits.erase(w_.splits.begin() + static_cast<std::ptrdiff_t>(chosen));
                    else split.lanes &= ~mask, split.pc = pc + 1;
                    w_.block->settle();
                    if (!w_.alive) {
                        w_.block->cluster->settle();
                        const auto& all = w_.block->warps;
                        Checks* const checks = w_.block->checks();
                        if (checks && std::none_of(all.begin(), all.end(), [](const Warp& w) { return w.alive; }))
                            checks->ended(w_);
                    }
                    break;
                } else if (flow == Flow::Again) {
                    split.pc = pc;
                    return State::Waits;
                } else if (flow == Flow::Spread) {
                    ++w_.executed;
                    moved = true;
                    break;
                } else {  // Retry
                    ++w_.executed;
                    split.pc = pc + 1;
                    Warp::Retried& last = retried(split);
                    // However long the loop is: compilers move what they like into it.
                    const bool waits = w_.executed - last.at < kLoop * w_.splits.size() || last.lasting == w_.lasting;
                    if (last.pc == pc && waits) moved = false;
                    last = {pc, w_.executed, w_.lasting};
                    // What it waits for may be up to lanes that are further on.
                    asked_ |= stuck_ ? split.lanes : kAllLanes;
                    break;
                }
            }
            if (pc >= limit) {
                split.pc = pc;
                break;
            }
            if (--left == 0) {
                if (rest) {
                    split.pc = pc;
                    break;
                }
                split.pc = pc;
                // A short turn within a loop that asks again and again.
                const Warp::Retried& last = retried(split);
                if (dice_ && last.pc != ~u32{0} && w_.executed - last.at < kLoop) moved = false;
                return State::Paused;
            }
        }
        if (rest) {
            grant_ = left ? left - 1 : 0;
            if (!grant_) granted_ = 0;
            left = rest + grant_;
        }
    }
    std::fill(std::begin(w_.committed), std::end(w_.committed), ~u32{0});
    std::fill(std::begin(w_.stores_committed), std::end(w_.stores_committed), ~u32{0});
    complete_copies(w_, kAllLanes, 0);
    complete_stores(w_, kAllLanes, 0);
    return State::Done;
}

size_t Runner::choose_split() {
    std::vector<Split>& all = w_.splits;
    if (all.size() == 1) {
        all[0].parked = false;
        return 0;
    }
    ahead_ = 0;
    if (dice_ && dice_->one_in(4)) {
        const size_t first = dice_->below(all.size());
        for (size_t i = 0; i < all.size(); ++i)
            if (const size_t at = (first + i) % all.size(); !all[at].parked) {
                ahead_ = 1 + dice_->below(32);
                return join(at);
            }
    }
    if (std::exchange(forced_, false)) {
        const auto next = std::find_if(all.begin(), all.end(), [&](const Split& each) { return may_run(each); });
        granted_ = next == all.end() ? 0 : next->lanes & -next->lanes;
        grant_ = kGranted;
    }
    for (size_t i = 0; granted_ && i < all.size(); ++i)
        if (all[i].lanes & granted_ && may_run(all[i])) return i;
    granted_ = 0;
    size_t best = all.size();
    for (size_t i = 0; i < all.size(); ++i)
        if (may_run(all[i]) && (best == all.size() || behind(all[i], all[best]))) best = i;
    return best == all.size() ? unpark() : join(best);
}

size_t Runner::join(size_t best) {
    std::vector<Split>& all = w_.splits;
    for (size_t i = 0; i < all.size();) {
        if (i != best && all[i].pc == all[best].pc && !all[i].parked) {
            all[best].lanes |= all[i].lanes;
            all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
            if (i < best) --best;
        } else {
            ++i;
        }
    }
    return best;
}

size_t Runner::unpark() {
    std::vector<Split>& all = w_.splits;
    for (size_t i = 0; i < all.size(); ++i) {
        u32 there = 0;
        for (const Split& other : all)
            if (other.pc == all[i].pc) there |= other.lanes;
        const Op& op = program_.ops[all[i].pc];
        now = &op;
        if ((wanted(op, there) & ~there) == 0) return merge(i);
    }
    std::string text = "lanes of a warp wait for each other at unlike instructions:";
    for (const Split& split : all) {
        char lanes[16];
        std::snprintf(lanes, sizeof lanes, " 0x%08x", split.lanes);
        text += lanes + (" at '" + program_.function->statements[program_.ops[split.pc].statement].text + "'");
    }
    throw Fault("barrier", text);
}

size_t Runner::merge(size_t at) {
    std::vector<Split>& all = w_.splits;
    const u32 pc = all[at].pc;
    u32 lanes = 0;
    for (const Split& each : all)
        if (each.pc == pc) lanes |= each.lanes;
    std::erase_if(all, [&](const Split& each) { return each.pc == pc; });
    all.push_back({pc, lanes, false});
    return all.size() - 1;
}

u32 Runner::wanted(const Op& op, u32 lanes) const {
    if (op.members == Op::kAllMembers) return w_.alive;
    return w_.lanes<u32>(op.members)[std::countr_zero(lanes)] & w_.alive;
}

bool Runner::complete(Split& split, const Op& op, u32 mask) {
    if (w_.splits.size() == 1) return true;
    u32 there = mask;
    const u32 all = wanted(op, mask);
    if ((all & ~there) == 0) return true;
    const auto pc = static_cast<u32>(&op - program_.ops.data());
    for (const Split& other : w_.splits)
        if (&other != &split && other.parked && other.pc == pc) there |= other.lanes;
    if (all & ~there) return false;
    for (Split& other : w_.splits)
        if (&other != &split && other.parked && other.pc == pc) other.parked = false;
    met_ = true;  // they become one split first
    return false;
}

u32 Runner::next_other(size_t chosen) const {
    u32 least = ~u32{0};
    for (size_t i = 0; i < w_.splits.size(); ++i)
        if (i != chosen && may_run(w_.splits[i]))
            least = std::min(least, w_.calls ? w_.calls->limit(w_.splits[chosen], w_.splits[i]) : w_.splits[i].pc);
    return least;
}

bool Runner::others_may_run() const {
    return std::any_of(w_.splits.begin(), w_.splits.end(), [&](const Split& each) { return may_run(each); });
}

}  // namespace

State run_warp(Warp& warp, const Program& program, Dice* dice, bool stuck, bool& moved, const Op*& now) {
    Runner runner(warp, program, dice, stuck);
    bool went = false;
    try {
        const State state = runner.go_on(went);
        moved |= went;
        return state;
    } catch (const Fault&) {
        now = runner.now;
        throw;
    }
}

Flow spread(Warp& w, const std::vector<Target>& targets) {
    for (Split& split : w.splits)
        if (split.lanes & w.mask) split.lanes &= ~w.mask, split.pc = w.op->statement + 1;
    std::erase_if(w.splits, [](const Split& split) { return !split.lanes; });
    for (const Target& each : targets) w.splits.push_back({each.pc, each.lanes, false});
    return Flow::Spread;
}

}  // namespace emu::ptx
