// SPDX-License-Identifier: MIT
// A warp runs until it waits, then the next one of its block; a block that cannot go on makes room for another one.
#include "run.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "core/threads.h"
#include "runner.h"
#include "start.h"

namespace emu::ptx {
namespace {

constexpr u32 kIdle = 1'000;  // rounds of a cluster that waits for itself
constexpr u32 kTurns = 4;     // whole turns that only read, before another cluster may begin: they may wait for it
// Of a random schedule:
constexpr u32 kMixed = 4;          // clusters that take turns, if they can
constexpr u32 kAnyOrder = 32;      // clusters that begin in any order: more could not wait for each other
constexpr u32 kRandomTurns = 256;  // turns that only read, before another cluster may begin
constexpr u32 kStuck = 64;  // turns that a slow copy waits for: who looks at memory again and again seems to go on

class Run {
public:
    Run(const Launch& launch, unsigned threads) : launch_(launch) {
        blocks_ = u64{launch.grid[0] / launch.cluster[0]} * (launch.grid[1] / launch.cluster[1]) *
                  (launch.grid[2] / launch.cluster[2]);
        // A random order is that of its seed only where no other thread decides.
        threads_ = random() ? 1 : static_cast<unsigned>(std::min<u64>(std::max(1u, threads), blocks_));
        if (launch.checks & kGlobalRace) shadow_ = std::make_unique<GlobalShadow>(*launch.memory);
        if (launch.counters) outcome_.tally = Tally(launch.program->ops.size());
    }

    Outcome operator()() {
        on_threads(threads_, [this](unsigned) { work(); });
        outcome_.executed = executed_;
        outcome_.found = report_.take();
        return outcome_;
    }

private:
    static constexpr size_t kResident = 64;  // blocks that one thread holds if they wait for each other

    void work() {
        std::vector<std::unique_ptr<Resident>> residents;
        Tally tally(launch_.counters ? launch_.program->ops.size() : 0);
        for (;;) {
            bool moved = false;
            if (random()) dice_.shuffle(residents);
            for (auto& resident : residents)
                if (resident->live && !failed_) moved |= advance(*resident);
            if (failed_) return collect(residents, tally);
            const auto live = std::count_if(residents.begin(), residents.end(), [](const auto& r) { return r->live; });
            const bool any = live > 0;
            if (!any || !moved || (random() && live < kMixed && next_ < blocks_)) {
                // Nothing goes on here: another block, which the others may wait for.
                const bool room = !any || residents.size() < kResident;
                const u64 number = room ? next() : blocks_;
                if (number < blocks_) {
                    Resident* place = nullptr;
                    for (auto& each : residents)
                        if (!each->live) place = each.get();
                    if (!place) place = residents.emplace_back(std::make_unique<Resident>()).get();
                    place->cluster.tally = launch_.counters ? &tally : nullptr;
                    begin(*place, launch_, number, report_, shadow_.get());
                } else if (!any) {
                    return collect(residents, tally);
                } else {
                    std::this_thread::yield();
                }
            }
        }
    }

    /// What a thread's clusters have written and what was counted of them, once it is done with them.
    void collect(const std::vector<std::unique_ptr<Resident>>& residents, const Tally& tally) {
        const std::lock_guard lock(mutex_);
        outcome_.tally.add(tally);
        for (const auto& each : residents)
            if (const Checks* const checks = each->cluster.checks.get())
                for (size_t i = 0; i < checks->written.parts.size(); ++i)
                    outcome_.written.add(checks->written.parts[i].begin, checks->written.parts[i].end, i);
    }

    bool random() const { return launch_.schedule.order == Order::Random; }

    /// The number of the cluster that begins next; `blocks_` if all have.
    u64 next() {
        const u64 number = next_++;
        if (!random() || number >= blocks_) return number;
        const u64 first = number / kAnyOrder * kAnyOrder;
        if (number == first) {
            window_.clear();
            for (u64 each = first; each < std::min(first + kAnyOrder, blocks_); ++each) window_.push_back(each);
            dice_.shuffle(window_);
        }
        return window_[number - first];
    }

    /// The cluster's warps, until none can go on or it has had its turn; whether any of them did.
    bool advance(Resident& resident) {
        Cluster& cluster = resident.cluster;
        Dice* const dice = random() ? &cluster.dice : nullptr;
        bool moved_ever = false;
        u32 rounds = dice ? 1 + dice->below(2) : 0, turns = 0;
        while (dice || turns < kTurns) {
            if (dice && !rounds--) break;
            bool moved = false, live = false, may_go_on = false;
            std::vector<Warp*>& warps = resident.warps;
            warps.clear();
            for (Block& block : cluster.blocks)
                for (Warp& warp : block.warps)
                    if (!warp.done()) warps.push_back(&warp);
            if (dice) dice->shuffle(warps);
            for (Warp* const each : warps) {
                Warp& warp = *each;
                const Op* now = nullptr;
                const u64 lasting = warp.lasting;
                try {
                    const State state = run_warp(warp, *launch_.program, dice, cluster.idle > 0, moved, now);
                    live |= state != State::Done;
                    may_go_on |= state == State::Spins || state == State::Paused;
                    turns += state == State::Paused && lasting == warp.lasting;
                } catch (const Fault& fault) {
                    fail(*warp.block, warp, now, fault);
                    return true;
                }
            }
            moved_ever |= moved;
            if (moved) cluster.idle = 0;
            if (!live) {
                for (const Block& block : cluster.blocks)
                    for (const Warp& warp : block.warps) executed_ += warp.executed;
                if (cluster.tally)
                    for (const Block& block : cluster.blocks)
                        ++cluster.tally->blocks, cluster.tally->warps += block.warps.size();
                resident.live = false;
                return true;
            }
            if (!moved || (dice && !cluster.pending.empty() && dice->one_in(3))) {
                if (cluster.pending.empty()) {
                    // An mbarrier can only be completed from within the cluster: asking again does not help.
                    if (!may_go_on || ++cluster.idle > kIdle) deadlock(cluster);
                    return moved_ever;
                }
                if (!land(cluster, dice, !moved)) return true;
                moved_ever = true;
            }
        }
        // It has had its turn: what only reads may wait for a copy, or for a block that has not begun.
        if (!dice) {
            if (cluster.pending.empty()) return false;
            land(cluster, dice, true);
            return true;
        }
        resident.turns += turns;
        if (resident.turns < kRandomTurns) return moved_ever;
        resident.turns = 0;
        return false;
    }

    /// Carries out an asynchronous copy, the oldest unless it is random; whether that went well. `stuck`: nothing else goes on.
    bool land(Cluster& cluster, Dice* dice, bool stuck) {
        auto chosen = cluster.pending.begin();
        if (dice) {
            const bool slow = std::all_of(
                cluster.pending.begin(), cluster.pending.end(), [](const Cluster::Pending& each) { return each.slow; });
            if (slow && !stuck && !dice->one_in(kStuck)) return true;
            do chosen = cluster.pending.begin() + static_cast<std::ptrdiff_t>(dice->below(cluster.pending.size()));
            while (chosen->slow != slow);
        }
        const Cluster::Pending next = std::move(*chosen);
        cluster.pending.erase(chosen);
        try {
            next.work();
        } catch (const Fault& fault) {
            fail(*next.warp->block, *next.warp, next.op, fault);
            return false;
        }
        return true;
    }

    void deadlock(Cluster& cluster) {
        std::string text = "every warp waits";
        // Also barriers at which nobody waits: who came there once too often shows by them.
        for (const Block& each : cluster.blocks)
            for (size_t i = 0; i < std::size(each.barriers); ++i)
                if (const Barrier& barrier = each.barriers[i]; barrier.arrived)
                    text += ", barrier " + std::to_string(i) + " has " + std::to_string(barrier.arrived) +
                            (barrier.expected ? " of " + std::to_string(barrier.expected) : "") + " threads";
        text += ":";
        const Block* block = nullptr;
        const Warp* first = nullptr;
        for (const Block& each : cluster.blocks)
            for (const Warp& warp : each.warps) {
                if (warp.done()) continue;
                if (!first) first = &warp, block = &each;
                if (text.size() < 800)
                    text +=
                        " warp " + std::to_string(warp.index) + " at '" +
                        launch_.program->function->statements[launch_.program->ops[warp.splits[0].pc].statement].text +
                        "'";
            }
        if (first) fail(*block, *first, &launch_.program->ops[first->splits[0].pc], Fault("barrier", text, 719));
    }

    void fail(const Block& block, const Warp& warp, const Op* op, const Fault& fault) {
        const std::lock_guard lock(mutex_);
        if (failed_.exchange(true)) return;
        outcome_.ok = false;
        outcome_.cuda_error = fault.cuda_error;
        outcome_.check = fault.check;
        outcome_.message = fault.what();
        if (op) {
            outcome_.place = launch_.program->place(*op);
            const Statement& s = launch_.program->function->statements[op->statement];
            const auto file = launch_.program->files.find(s.file);
            if (file != launch_.program->files.end()) outcome_.file = file->second;
            outcome_.line = s.line;
        }
        if (!fault.file.empty()) outcome_.file = fault.file, outcome_.line = fault.line;
        std::copy(std::begin(block.index), std::end(block.index), std::begin(outcome_.block));
        outcome_.warp = warp.index;
    }

    const Launch& launch_;
    u64 blocks_;
    unsigned threads_;
    std::atomic<u64> next_{0}, executed_{0};
    std::atomic<bool> failed_{false};
    Dice dice_{launch_.schedule.seed};  // of a random schedule, like the next
    std::vector<u64> window_;
    std::mutex mutex_;
    Outcome outcome_;
    Report report_;
    std::unique_ptr<GlobalShadow> shadow_;
};

}  // namespace

Outcome run(const Launch& launch, unsigned threads) { return Run(launch, threads)(); }

}  // namespace emu::ptx
