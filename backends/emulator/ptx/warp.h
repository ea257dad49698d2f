// SPDX-License-Identifier: MIT
// The state of warps and blocks while they run, and how instructions reach it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <unordered_map>

#include "calls.h"
#include "checks/checks.h"
#include "counters/tally.h"
#include "program.h"
#include "ranges.h"
#include "schedule.h"

namespace emu::ptx {

struct Block;
struct Cluster;

/// The kernel did what no kernel may; the message says what. The run adds the place.
struct Fault : std::runtime_error {
    Fault(std::string check, const std::string& message, int cuda_error = 719)
        : std::runtime_error(message), check(std::move(check)), cuda_error(cuda_error) {}
    std::string check;
    int cuda_error;    // cudaErrorLaunchFailure unless it has a number of its own
    std::string file;  // the place that the kernel itself names; "": the instruction's
    u32 line = 0;
};

/// Generic addresses of shared and local memory lie in windows that no allocation can be in.
constexpr u64 kSharedWindow = u64{1} << 56;
constexpr u64 kLocalWindow = u64{2} << 56;
constexpr u64 kParamWindow = u64{3} << 56;
constexpr u64 kWindow = u64{0xff} << 56;
/// An address of shared::cluster: the rank of its block, plus 1, above these bits; 0 is the block's own.
constexpr u32 kRankShift = 24;

struct Split {
    u32 pc = 0;
    u32 lanes = 0;
    bool parked = false;  // waits for the other lanes at an instruction that all execute together
};

/// A copy by cp.async that may not have happened yet.
struct PendingCopy {
    u32 group;
    u32 target;
    u64 source;
    u8 bytes, read;
    u8 lane;
};

struct Warp {
    char* registers = nullptr;
    const char* constants = nullptr;
    u32 mask = 0;   // lanes that the instruction acts on
    u32 index = 0;  // in the block
    u32 alive = 0;  // lanes that have not ended
    Block* block = nullptr;
    const Op* op = nullptr;  // that is executed
    std::vector<Split> splits;
    u32 patience = 0;  // jumps backwards of its splits since another one than that furthest behind has had a turn
    u64 executed = 0;
    u64 lasting = 0;  // of them those that store or multiply
    // The last instruction that answered "not yet" to a split, by its first lane, and when: a loop around it is no progress.
    struct Retried {
        u32 pc = ~u32{0};
        u64 at = 0, lasting = 0;
    };
    Retried retried[kLanes];
    const Ranges::Range* range = nullptr;  // of the last global access
    // A barrier that the warp has arrived at and waits for; -1: none.
    i32 barrier = -1;
    u64 barrier_phase = 0;
    // cp.async
    std::vector<PendingCopy> copies;
    u32 committed[kLanes] = {};
    // Bulk copies out of shared memory, by lane: those of groups that are not complete.
    struct PendingStore {
        u32 group;
        u8 lane;
        std::function<void()> run;
    };
    std::vector<PendingStore> stores;
    u32 stores_committed[kLanes] = {};
    u32 allowance = 0;  // registers of a thread since setmaxnreg; 0: as many as at the launch
    // barrier.cluster: the phase that the warp arrived in, plus 1; 0: none that it has not waited for.
    u64 cluster_arrival = 0;
    // wgmma: how many it has issued, and how many at each commit.
    u64 products = 0;
    std::deque<u64> product_groups;
    size_t steps = 0;              // of its warpgroup that it has made, see Block::steps
    std::shared_ptr<Calls> calls;  // null: the program has none

    bool done() const { return splits.empty(); }
    const char* at(i32 offset) const { return offset >= 0 ? registers + offset : constants + (-1 - offset); }
    char* to(i32 offset) const { return registers + offset; }
    template <class V>
    const V& get(i32 offset) const {
        return *reinterpret_cast<const V*>(__builtin_assume_aligned(at(offset), 64));
    }
    /// Lane values of a register, to be read.
    template <class T>
    const T* lanes(i32 offset) const {
        return reinterpret_cast<const T*>(at(offset));
    }
    template <class V>
    void put(i32 offset, V value) const {
        auto* const target = reinterpret_cast<V*>(__builtin_assume_aligned(to(offset), 64));
        *target = mask == kAllLanes ? value : choose<V>(to_lanes(mask), value, *target);
    }
    u32 predicate(i32 offset) const { return *lanes<u32>(offset); }
    void put_predicate(i32 offset, u32 value) const {
        u32& target = *reinterpret_cast<u32*>(to(offset));
        target = (target & ~mask) | (value & mask);
    }
};

struct Barrier {
    struct Votes {
        u32 yes = 0, all = 0;
    };
    u32 arrived = 0;
    u32 expected = 0;  // 0: all threads of the block that have not ended
    u64 phase = 0;
    Votes votes[2];  // of bar.red, by phase
    Handed handed;
};

/// An mbarrier object. A phase ends when no arrival and no byte is awaited.
struct Mbarrier {
    u32 expected = 0, pending = 0;
    i64 bytes = 0;
    u64 phase = 0;
    std::shared_ptr<Handed> handed;  // null without checks
    void settle() {
        if (pending || bytes) return;
        ++phase;
        pending = expected;
        if (!handed) return;
        entry(handed->now.known, handed->actor).all = handed->base + static_cast<u32>(phase);
        handed->seen = handed->now;
    }
};

struct Launch {
    const Program* program = nullptr;
    u32 grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, cluster[3] = {1, 1, 1};
    u32 shared_bytes = 0;  // static and dynamic
    u32 dynamic_bytes = 0;
    std::vector<u8> parameters;
    Schedule schedule;
    u32 multiprocessors = 58;
    u64 serial = 0;
    const Ranges* memory = nullptr;
    u32 checks = 0;  // of Check
    bool counters = false;
    const Written* before = nullptr;  // by the launch that may still run when this one begins; null: none may
    u32 threads() const { return block[0] * block[1] * block[2]; }
};

struct Block {
    const Launch* launch = nullptr;
    u32 index[3] = {0, 0, 0};
    u8* shared = nullptr;
    u8* local = nullptr;
    std::vector<Warp> warps;
    Barrier barriers[16];
    Cluster* cluster = nullptr;
    u32 rank = 0;                                 // in the cluster
    std::vector<std::shared_ptr<void>> operands;  // of wgmma, by warpgroup: what its warps have decoded
    std::vector<std::vector<const Op*>> steps;    // the wgmma instructions of each warpgroup, by its first warp to come
    std::unordered_map<u32, Mbarrier> mbarriers;  // by the offset in shared memory

    /// Counts arrivals at a barrier, and opens it when all are there.
    void arrive(Barrier& barrier, u32 threads, u32 expected);
    Checks* checks() const;
    /// A barrier for all threads may be complete now that some have ended.
    void settle();
    u32 living() const;
};

/// Blocks that run together; most kernels have one block in each.
struct Cluster {
    std::vector<Block> blocks;
    struct Pending {
        const Warp* warp;
        const Op* op;
        std::function<void()> work;
        bool slow;  // of a random schedule
    };
    std::deque<Pending> pending;     // asynchronous copies, in the order of issue
    u64 phase = 0;                   // of barrier.cluster
    u32 idle = 0;                    // rounds in which its warps only asked again whether they may go on
    std::unique_ptr<Checks> checks;  // null: none are wanted
    Handed handed;                   // by barrier.cluster
    Dice dice;                       // of a random schedule
    Tally* tally = nullptr;          // null: nothing is counted
    /// Whether an asynchronous copy that is issued now takes place now.
    bool at_once();
    /// Now, or later, when nobody can go on without it.
    void later(const Warp&, const Op&, std::function<void()> work);
    /// Ends the phase of barrier.cluster if all warps that have not ended have arrived.
    void settle();
};

inline Checks* Block::checks() const { return cluster->checks.get(); }

/// The block and offset that an address of shared memory means. Throws Fault for a rank that the cluster has not.
struct SharedPlace {
    Block* block;
    u32 offset;
};
SharedPlace shared_place(Warp&, u64 address);
/// The mbarrier at an address. Throws Fault where there is none.
Mbarrier& mbarrier_at(Warp&, int lane, u64 address);

/// Flow::Spread: the lanes of each target, which are those that the instruction acts on, go there.
struct Target {
    u32 pc, lanes;
};
Flow spread(Warp&, const std::vector<Target>&);
inline void add_lane(std::vector<Target>& targets, u32 pc, int lane) {
    for (Target& each : targets)
        if (each.pc == pc) {
            each.lanes |= 1u << lane;
            return;
        }
    targets.push_back({pc, 1u << lane});
}

/// Carries out bulk copies out of shared memory: those of the lanes in `mask` in all but the newest `kept` groups.
void complete_stores(Warp&, u32 mask, u32 kept);

/// Where addresses of one lane lead, for `bytes` aligned to `align`. They throw Fault for memory that is not the kernel's.
u8* shared_memory(Warp&, int lane, u64 address, u32 bytes, u32 align);
u8* global_memory(Warp&, int lane, u64 address, u32 bytes, u32 align);
u8* local_memory(Warp&, int lane, u64 offset, u32 bytes, u32 align);
u8* generic_memory(Warp&, int lane, u64 address, u32 bytes, u32 align);
using Memory = u8* (*)(Warp&, int, u64, u32, u32);

void carry_out(Warp&, const PendingCopy&);
/// Carries out copies of the lanes in `mask` whose group is complete by wait_group `kept`.
void complete_copies(Warp&, u32 mask, u32 kept);

}  // namespace emu::ptx
