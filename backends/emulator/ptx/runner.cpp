// SPDX-License-Identifier: MIT
#include "runner.h"

#include <cstdio>

namespace emu::ptx {
namespace {

constexpr u32 kTurn = 50'000;     // instructions of a warp before the next one of its block
constexpr u32 kLoop = 64;         // instructions of a loop that asks again and again
constexpr u32 kPatience = 2'000;  // jumps backwards of a split before another one of its warp gets a turn

}  // namespace

Flow spread(Warp& w, const std::vector<Target>& targets) {
    for (Split& split : w.splits)
        if (split.lanes & w.mask) split.lanes &= ~w.mask, split.pc = w.op->statement + 1;
    std::erase_if(w.splits, [](const Split& split) { return !split.lanes; });
    for (const Target& each : targets) w.splits.push_back({each.pc, each.lanes, false});
    return Flow::Spread;
}

State Runner::run(bool& moved) {
    bool went = false;
    const State state = go_on(went);
    moved |= went;
    return state;
}

State Runner::go_on(bool& moved) {
    u32 left = dice_ ? dice_->turn() : kTurn, patience = kPatience;
    while (!w_.splits.empty()) {
        if (asked_ && !others_may_run()) return State::Spins;
        const size_t chosen = choose_split();
        Split& split = w_.splits[chosen];
        const u32 limit = ahead_ ? ~u32{0} : next_other(chosen);
        if (ahead_) left = std::min(left, ahead_);
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
                    if (backwards && w_.splits.size() > 1 && --patience == 0) {
                        // It may wait for lanes that are further on: they get a turn.
                        split.pc = pc;
                        std::rotate(
                            w_.splits.begin(), w_.splits.begin() + static_cast<std::ptrdiff_t>(chosen) + 1,
                            w_.splits.end());
                        forced_ = true;
                        patience = kPatience;
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
                    if (last.pc == pc && w_.executed - last.at < kLoop * w_.splits.size()) moved = false;
                    last = {pc, w_.executed};
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
                split.pc = pc;
                // A short turn within a loop that asks again and again.
                const Warp::Retried& last = retried(split);
                if (dice_ && last.pc != ~u32{0} && w_.executed - last.at < kLoop) moved = false;
                return State::Paused;
            }
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
    if (forced_) {
        forced_ = false;
        for (size_t i = 0; i < all.size(); ++i)
            if (!all[i].parked) return i;
    }
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

}  // namespace emu::ptx
