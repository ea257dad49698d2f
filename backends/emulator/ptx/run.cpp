// SPDX-License-Identifier: MIT
// A warp runs until it waits, then the next one of its block; a block that cannot go on makes room for another one. Lanes that
// diverge are splits of their warp: the one that is furthest behind runs, so that they meet again.
#include "run.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace emu::ptx {

u32 Block::living() const {
    u32 threads = 0;
    for (const Warp& warp : warps) threads += static_cast<u32>(std::popcount(warp.alive));
    return threads;
}

void Block::arrive(Barrier& barrier, u32 threads, u32 expected) {
    if (expected % kLanes)
        throw Fault("barrier", "a barrier for " + std::to_string(expected) + " threads, which is no multiple of 32");
    if (barrier.arrived && barrier.expected != expected)
        throw Fault(
            "barrier", "a barrier for " + std::to_string(expected) + " threads, where others wait for " +
                           std::to_string(barrier.expected));
    barrier.expected = expected;
    barrier.arrived += threads;
    settle();
}

void Block::settle() {
    for (Barrier& barrier : barriers) {
        if (!barrier.arrived) continue;
        u32 wanted = barrier.expected;
        if (!wanted)
            for (const Warp& warp : warps) wanted += warp.alive ? kLanes : 0;
        if (barrier.arrived < wanted) continue;
        barrier.arrived = 0;
        ++barrier.phase;
        barrier.handed.seen = barrier.handed.now;
    }
}

bool Cluster::at_once() {
    const Order order = blocks[0].launch->schedule.order;
    return order == Order::Eager || (order == Order::Random && dice.one_in(4));
}

constexpr u32 kSlow = 8;    // of so many copies of a random schedule, one waits until nothing goes on without it,
constexpr u32 kStuck = 64;  // or for about so many turns: who looks at memory again and again seems to go on

void Cluster::later(const Warp& warp, const Op& op, std::function<void()> work) {
    if (at_once()) work();
    else
        pending.push_back(
            {&warp, &op, std::move(work), blocks[0].launch->schedule.order == Order::Random && dice.one_in(kSlow)});
}

void Cluster::settle() {
    for (const Block& block : blocks)
        for (const Warp& warp : block.warps)
            if (warp.alive && warp.cluster_arrival != phase + 1) return;
    ++phase;
    handed.seen = handed.now;
}

void complete_stores(Warp& w, u32 mask, u32 kept) {
    size_t left = 0;
    for (Warp::PendingStore& store : w.stores) {
        if ((mask >> store.lane & 1) && store.group + kept < w.stores_committed[store.lane]) store.run();
        else if (auto& place = w.stores[left++]; &place != &store) place = std::move(store);
    }
    w.stores.resize(left);
}

namespace {

enum class State : u8 { Done, Waits, Spins, Paused };

constexpr u32 kTurn = 50'000;     // instructions of a warp before the next one of its block
constexpr u32 kIdle = 1'000;      // rounds of a cluster that waits for itself
constexpr u32 kTurns = 4;         // whole turns that only read, before another cluster may begin: they may wait for it
constexpr u32 kLoop = 64;         // instructions of a loop that asks again and again
constexpr u32 kPatience = 2'000;  // jumps backwards of a split before another one of its warp gets a turn
// Of a random schedule:
constexpr u32 kMixed = 4;          // clusters that take turns, if they can
constexpr u32 kAnyOrder = 32;      // clusters that begin in any order: more could not wait for each other
constexpr u32 kRandomTurns = 256;  // turns that only read, before another cluster may begin

/// One warp. `moved`: whether it executed anything but waiting.
class Runner {
public:
    /// `dice`: of a random schedule, else null. `stuck`: whether the cluster has not gone on for a while.
    Runner(Warp& warp, const Program& program, Dice* dice, bool stuck)
        : w_(warp), program_(program), checks_(program.watched ? warp.block->checks() : nullptr),
          counts_(warp.block->cluster->tally ? warp.block->cluster->tally->executed.data() : nullptr), dice_(dice),
          stuck_(stuck) {}

    State run(bool& moved) {
        bool went = false;
        const State state = go_on(went);
        moved |= went;
        return state;
    }

    const Op* now = nullptr;

private:
    State go_on(bool& moved) {
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
                        if (mask == split.lanes)
                            w_.splits.erase(w_.splits.begin() + static_cast<std::ptrdiff_t>(chosen));
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

    /// The split that runs next: the one furthest behind that is not parked. Splits at one place become one.
    size_t choose_split() {
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
            if (may_run(all[i]) && (best == all.size() || all[i].pc < all[best].pc)) best = i;
        return best == all.size() ? unpark() : join(best);
    }

    /// Those at the place of a split that are not parked become one with it; where it is then.
    size_t join(size_t best) {
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

    /// All wait for each other: those at one place go on, if there is a place with all that it waits for.
    size_t unpark() {
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

    size_t merge(size_t at) {
        std::vector<Split>& all = w_.splits;
        const u32 pc = all[at].pc;
        u32 lanes = 0;
        for (const Split& each : all)
            if (each.pc == pc) lanes |= each.lanes;
        std::erase_if(all, [&](const Split& each) { return each.pc == pc; });
        all.push_back({pc, lanes, false});
        return all.size() - 1;
    }

    u32 wanted(const Op& op, u32 lanes) const {
        if (op.members == Op::kAllMembers) return w_.alive;
        return w_.lanes<u32>(op.members)[std::countr_zero(lanes)] & w_.alive;
    }

    /// Whether all lanes that execute it together are here; else they wait.
    bool complete(Split& split, const Op& op, u32 mask) {
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

    u32 next_other(size_t chosen) const {
        u32 least = ~u32{0};
        for (size_t i = 0; i < w_.splits.size(); ++i)
            if (i != chosen && may_run(w_.splits[i])) least = std::min(least, w_.splits[i].pc);
        return least;
    }

    bool may_run(const Split& split) const { return !split.parked && !(split.lanes & asked_); }
    bool others_may_run() const {
        return std::any_of(w_.splits.begin(), w_.splits.end(), [&](const Split& each) { return may_run(each); });
    }
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

/// A cluster with memory of its own.
struct Resident {
    struct Memory {
        std::vector<u8> shared, local;
        std::vector<char> registers;
    };
    Cluster cluster;
    std::vector<Memory> memory;
    bool live = false;
    u32 turns = 0;             // that only read
    std::vector<Warp*> warps;  // of a round
};

template <class T>
T* aligned(std::vector<T>& storage, size_t bytes, size_t align) {
    storage.resize(bytes + align);
    return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(storage.data()) + align - 1) / align * align);
}

void start_special(Warp& w, const Block& block, const Program::Start& start) {
    const Launch& launch = *block.launch;
    u32v value = u32v(0u);
    const u32 nx = launch.block[0], ny = launch.block[1];
    for (u32 lane = 0; lane < kLanes; ++lane) {
        const u32 thread = w.index * kLanes + lane;
        switch (start.special) {
            case Special::TidX: value[lane] = thread % nx; break;
            case Special::TidY: value[lane] = thread / nx % ny; break;
            case Special::TidZ: value[lane] = thread / nx / ny; break;
            case Special::NtidX: value[lane] = nx; break;
            case Special::NtidY: value[lane] = ny; break;
            case Special::NtidZ: value[lane] = launch.block[2]; break;
            case Special::CtaidX: value[lane] = block.index[0]; break;
            case Special::CtaidY: value[lane] = block.index[1]; break;
            case Special::CtaidZ: value[lane] = block.index[2]; break;
            case Special::NctaidX: value[lane] = launch.grid[0]; break;
            case Special::NctaidY: value[lane] = launch.grid[1]; break;
            case Special::NctaidZ: value[lane] = launch.grid[2]; break;
            case Special::ClusteridX: value[lane] = block.index[0] / launch.cluster[0]; break;
            case Special::ClusteridY: value[lane] = block.index[1] / launch.cluster[1]; break;
            case Special::ClusteridZ: value[lane] = block.index[2] / launch.cluster[2]; break;
            case Special::NclusteridX: value[lane] = launch.grid[0] / launch.cluster[0]; break;
            case Special::NclusteridY: value[lane] = launch.grid[1] / launch.cluster[1]; break;
            case Special::NclusteridZ: value[lane] = launch.grid[2] / launch.cluster[2]; break;
            case Special::ClusterCtaidX: value[lane] = block.index[0] % launch.cluster[0]; break;
            case Special::ClusterCtaidY: value[lane] = block.index[1] % launch.cluster[1]; break;
            case Special::ClusterCtaidZ: value[lane] = block.index[2] % launch.cluster[2]; break;
            case Special::ClusterCtarank: value[lane] = block.rank; break;
            case Special::IsExplicitCluster: value[lane] = block.cluster->blocks.size() > 1; break;
            case Special::LaneId: value[lane] = lane; break;
            case Special::WarpId: value[lane] = w.index; break;
            case Special::NwarpId: value[lane] = static_cast<u32>(block.warps.size()); break;
            case Special::LanemaskEq: value[lane] = 1u << lane; break;
            case Special::LanemaskLt: value[lane] = (1u << lane) - 1; break;
            case Special::LanemaskLe: value[lane] = (2u << lane) - 1; break;
            case Special::LanemaskGt: value[lane] = ~((2u << lane) - 1); break;
            case Special::LanemaskGe: value[lane] = ~((1u << lane) - 1); break;
            case Special::ClusterNctaidX: value[lane] = launch.cluster[0]; break;
            case Special::ClusterNctaidY: value[lane] = launch.cluster[1]; break;
            case Special::ClusterNctaidZ: value[lane] = launch.cluster[2]; break;
            case Special::ClusterNctarank: value[lane] = static_cast<u32>(block.cluster->blocks.size()); break;
            case Special::SmId: value[lane] = block.index[0] % launch.multiprocessors; break;
            case Special::NsmId: value[lane] = launch.multiprocessors; break;
            case Special::DynamicSmemSize: value[lane] = launch.dynamic_bytes; break;
            case Special::TotalSmemSize: value[lane] = launch.shared_bytes; break;
            default: break;
        }
    }
    if (start.special == Special::GridId) *reinterpret_cast<u64v*>(w.to(start.offset)) = u64v(launch.serial);
    else *reinterpret_cast<u32v*>(w.to(start.offset)) = value;
}

void begin(Block& block, Resident::Memory& memory, const Launch& launch) {
    const Program& program = *launch.program;
    block.launch = &launch;
    block.shared = aligned(memory.shared, launch.shared_bytes, 1024);
    // Nobody has written it: every bit set is NaN in every float format.
    std::memset(block.shared, 0xff, launch.shared_bytes);
    const u32 threads = launch.threads(), warps = (threads + kLanes - 1) / kLanes;
    block.local = aligned(memory.local, size_t{warps} * kLanes * program.local_bytes, 64);
    std::memset(block.local, 0xff, size_t{warps} * kLanes * program.local_bytes);
    const size_t per_warp = (size_t{program.register_bytes} + 63) / 64 * 64;
    char* const registers = aligned(memory.registers, per_warp * warps, 64);
    std::memset(registers, 0xff, per_warp * warps);
    block.warps.assign(warps, Warp{});
    block.mbarriers.clear();
    block.operands.clear();
    block.steps.clear();
    std::fill(std::begin(block.barriers), std::end(block.barriers), Barrier{});
    for (u32 i = 0; i < warps; ++i) {
        Warp& warp = block.warps[i];
        warp.registers = registers + per_warp * i;
        warp.constants = reinterpret_cast<const char*>(launch.program->constants.data());
        warp.index = i;
        warp.block = &block;
        const u32 present = std::min(threads - i * kLanes, static_cast<u32>(kLanes));
        warp.alive = present == kLanes ? kAllLanes : (1u << present) - 1;
        warp.splits = {{0, warp.alive, false}};
        for (const Program::Start& start : program.specials) start_special(warp, block, start);
    }
}

void begin(Resident& resident, const Launch& launch, u64 number, Report& report, GlobalShadow* shadow) {
    const u32* const size = launch.cluster;
    const u32 count = size[0] * size[1] * size[2];
    const u32 clusters[2] = {launch.grid[0] / size[0], launch.grid[1] / size[1]};
    const auto x = static_cast<u32>(number % clusters[0]), y = static_cast<u32>(number / clusters[0] % clusters[1]),
               z = static_cast<u32>(number / clusters[0] / clusters[1]);
    Cluster& cluster = resident.cluster;
    cluster.blocks.resize(count);
    cluster.pending.clear();
    cluster.phase = 0;
    cluster.idle = 0;
    resident.memory.resize(count);
    for (u32 rank = 0; rank < count; ++rank) {
        Block& block = cluster.blocks[rank];
        block.cluster = &cluster;
        block.rank = rank;
        block.index[0] = x * size[0] + rank % size[0];
        block.index[1] = y * size[1] + rank / size[0] % size[1];
        block.index[2] = z * size[2] + rank / size[0] / size[1];
        begin(block, resident.memory[rank], launch);
    }
    if (launch.checks) {
        if (!cluster.checks) cluster.checks = std::make_unique<Checks>(launch.checks, report, *launch.program, shadow);
        cluster.checks->reset(cluster, number);
    }
    cluster.handed = Handed{};
    cluster.dice = Dice(Dice(launch.schedule.seed).next() + number);
    resident.live = true;
    resident.turns = 0;
}

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
        std::vector<std::thread> helpers;
        for (unsigned i = 1; i < threads_; ++i) helpers.emplace_back([this] { work(); });
        work();
        for (std::thread& each : helpers) each.join();
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
                Runner runner(warp, *launch_.program, dice, cluster.idle > 0);
                const u64 lasting = warp.lasting;
                try {
                    const State state = runner.run(moved);
                    live |= state != State::Done;
                    may_go_on |= state == State::Spins || state == State::Paused;
                    turns += state == State::Paused && lasting == warp.lasting;
                } catch (const Fault& fault) {
                    fail(*warp.block, warp, runner.now, fault);
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
        std::string text = "every warp waits:";
        const Block* block = nullptr;
        const Warp* first = nullptr;
        for (const Block& each : cluster.blocks)
            for (const Warp& warp : each.warps) {
                if (warp.done()) continue;
                if (!first) first = &warp, block = &each;
                if (text.size() < 600)
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
