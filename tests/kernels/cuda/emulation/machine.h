// SPDX-License-Identifier: MIT
// Runs CUDA kernels of this repository on the host, one cluster of blocks at a time, to test them with no GPU.
//
// Every CUDA thread is a fiber. Fibers run in turn and give way only where a GPU would make them wait: at warp-wide
// instructions and at barriers. Between two barriers warps run in turns, or each as far as it gets, from the first or
// from the last one on, so that a missing barrier shows. Shared memory starts as NaN of every format. Asynchronous
// copies land at once or as late as their wait allows, so that a missing wait and an overwritten buffer both show. None
// may be under way when its thread ends. Every global address that an emulated copy or __ldg reads must lie in a range
// announced with emulation_allow.
//
// The instruction wrappers of kernels/cuda/ptx are replaced by the headers in ptx/ here: put this folder first on the
// include path and compile the .cu file as C++.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "fiber.h"

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace emulation {

[[noreturn]] inline void fail(const char* what) {
    std::fprintf(stderr, "emulation: %s\n", what);
    std::abort();
}

struct Transfer {
    uint32_t shared;
    const void* global;
    int bytes, total;
};

struct Block;

struct Fiber {
    fiber::Context context;
    Block* block = nullptr;
    std::vector<char> stack;
    unsigned index = 0;
    bool done = false;
    bool waited = false;  // itself, for the launches before
    std::vector<Transfer> open;
    std::deque<std::vector<Transfer>> groups;
};

/// A set of fibers that meet: each brings an argument, the last to arrive acts for all.
struct Meeting {
    std::vector<void*> arguments;
    const char* kind = nullptr;  // of instruction, the same for all members
    unsigned arrived = 0;
    uint64_t generation = 0;
};

/// A thread block. What Hopper's instructions add to it is in hopper.h.
struct Block {
    dim3 index;
    unsigned rank = 0;   // in its cluster
    bool waited = true;  // for the launches before, where it may start before they have ended
    std::vector<Meeting> warps;
    Meeting all;
    std::vector<uint8_t> shared;
    std::shared_ptr<void> extension;
};

/// Who runs until the next barrier: all warps in turns, or each as far as it gets, from the first or from the last one on.
enum class Order { kInTurns, kForward, kBackward };

struct Machine {
    fiber::Context scheduler;
    std::vector<std::unique_ptr<Fiber>> fibers;
    Fiber* current = nullptr;
    std::vector<std::unique_ptr<Block>> blocks;  // of the cluster that runs
    Meeting cluster;
    uint64_t progress = 0;
    bool eager = false;
    Order order = Order::kInTurns;
    uint64_t held = 0;            // which copies of a block wait until nothing else goes on
    bool (*stuck)() = nullptr;    // lets one of them go, if there is one
    uint64_t bank_conflicts = 0;  // 8-row groups of ldmatrix that hit a 16-byte bank group twice
    std::vector<std::pair<const char*, size_t>> allowed;
    dim3 grid_size, block_size;
    unsigned cluster_size = 1;
    bool early = false;     // the launch that runs may start before those before it have ended
    bool together = false;  // all blocks of a launch without clusters at the same time
    bool stale = false;     // numbers that are peeked at before earlier launches have ended are others then
    std::function<void()> body;
    std::function<void()> at_end;  // of every fiber
    int processors = 4;
    int refused = 0;  // the size from which on clusters do not fit
};

inline Machine& machine() {
    static Machine instance;
    return instance;
}

inline Block& this_block() { return *machine().current->block; }

/// Comes before an access to global memory that an emulated instruction makes.
inline void touch_global() {
    if (!this_block().waited) fail("global memory is touched before earlier launches have ended");
}

inline void give_way() { machine().current->context.leave_for(machine().scheduler); }

template <class Act>
void meet(Meeting& meeting, unsigned members, unsigned place, void* argument, const Act& act) {
    static const char kind = 0;  // one per type of `act`, and so per instruction
    if (meeting.arrived == 0) meeting.kind = &kind;
    if (meeting.kind != &kind)
        fail("warps of a warpgroup, or lanes of a warp, execute different instructions together");
    meeting.arguments.resize(members);
    meeting.arguments[place] = argument;
    if (++meeting.arrived == members) {
        act(meeting.arguments.data());
        meeting.arrived = 0;
        ++meeting.generation;
        ++machine().progress;
        return;
    }
    const uint64_t generation = meeting.generation;
    while (meeting.generation == generation) give_way();
}

inline unsigned lane() { return machine().current->index % 32; }

/// A warp-wide instruction: `act` gets the 32 lanes' arguments.
template <class Act>
void warp_wide(void* argument, const Act& act) {
    meet(this_block().warps[machine().current->index / 32], 32, lane(), argument, act);
}

inline uint8_t* shared_at(Block& block, uint32_t address, int bytes, int alignment) {
    if (address % alignment != 0) fail("misaligned shared memory address");
    if (address + static_cast<size_t>(bytes) > block.shared.size()) fail("shared memory access past the allocation");
    return block.shared.data() + address;
}

inline uint8_t* shared_at(uint32_t address, int bytes, int alignment) {
    return shared_at(this_block(), address, bytes, alignment);
}

inline bool may_read(const void* start, size_t bytes) {
    const char* from = static_cast<const char*>(start);
    for (const auto& range : machine().allowed) {
        if (from >= range.first && from + bytes <= range.first + range.second) return true;
    }
    return false;
}

inline void perform(Block& block, const Transfer& transfer) {
    uint8_t* to = shared_at(block, transfer.shared, transfer.total, transfer.total);
    const char* from = static_cast<const char*>(transfer.global);
    std::memset(to, 0, transfer.total);
    if (transfer.bytes == 0) return;
    if (reinterpret_cast<uintptr_t>(from) % transfer.total != 0)
        fail("misaligned global address of an asynchronous copy");
    if (!may_read(from, transfer.bytes)) fail("asynchronous copy reads outside every announced array");
    std::memcpy(to, from, transfer.bytes);
}

inline void copy(const Transfer& transfer) {
    if (machine().eager) perform(this_block(), transfer);
    else machine().current->open.push_back(transfer);
}

inline void commit() {
    Fiber& fiber = *machine().current;
    fiber.groups.push_back(std::move(fiber.open));
    fiber.open.clear();
}

inline void wait(size_t pending) {
    Fiber& fiber = *machine().current;
    while (fiber.groups.size() > pending) {
        for (const Transfer& transfer : fiber.groups.front()) perform(*fiber.block, transfer);
        fiber.groups.pop_front();
    }
}

inline void enter() {
    Machine& m = machine();
    m.body();
    if (m.at_end) m.at_end();
    for (const auto& group : m.current->groups) {
        if (!group.empty()) fail("a thread ends with asynchronous copies under way");
    }
    if (!m.current->open.empty()) fail("a thread ends with asynchronous copies that it never committed");
    m.current->done = true;
    ++m.progress;
    give_way();
}

inline void start_block(unsigned rank, dim3 index, size_t shared_bytes) {
    Machine& m = machine();
    const unsigned threads = m.block_size.x;
    if (threads % 32 != 0) fail("the block is no whole number of warps");
    while (m.blocks.size() <= rank) m.blocks.push_back(std::make_unique<Block>());
    Block& block = *m.blocks[rank];
    block.index = index;
    block.rank = rank;
    block.waited = !m.early;
    block.warps.assign(threads / 32, {});
    block.all = {};
    block.shared.assign(shared_bytes, 0xff);
    block.extension.reset();
    m.fibers.resize(static_cast<size_t>(threads) * m.cluster_size);
    for (unsigned i = 0; i < threads; ++i) {
        auto& slot = m.fibers[rank * threads + i];
        if (!slot) slot = std::make_unique<Fiber>();
        Fiber& fiber = *slot;
        fiber.stack.resize(64 * 1024);
        fiber.block = &block;
        fiber.index = i;
        fiber.done = false;
        fiber.waited = !m.early;
        fiber.open.clear();
        fiber.groups.clear();
        fiber.context.begin(enter, fiber.stack.data(), fiber.stack.size());
    }
}

/// Runs the threads of one warp, each until it waits; where warps do not take turns, again until they wait for another
/// warp. Returns whether any thread was left to run.
inline bool run_warp(unsigned number) {
    Machine& m = machine();
    std::unique_ptr<Fiber>* const fibers = &m.fibers[32 * number];
    const Meeting& meeting = fibers[0]->block->warps[fibers[0]->index / 32];
    for (bool any = false;; any = true) {
        const uint64_t before = meeting.generation;
        bool ran = false;
        for (int i = 0; i < 32; ++i) {
            if (fibers[i]->done) continue;
            ran = true;
            m.current = fibers[i].get();
            m.scheduler.leave_for(m.current->context);
        }
        if (!ran || m.order == Order::kInTurns || meeting.generation == before) return any || ran;
    }
}

inline void run_cluster() {
    Machine& m = machine();
    m.cluster = {};
    const unsigned warps = static_cast<unsigned>(m.fibers.size() / 32);
    for (bool all_done = false; !all_done;) {
        const uint64_t before = m.progress;
        all_done = true;
        for (unsigned i = 0; i < warps; ++i) {
            if (run_warp(m.order == Order::kBackward ? warps - 1 - i : i)) all_done = false;
        }
        if (!all_done && m.progress == before && m.stuck != nullptr && m.stuck()) continue;
        if (!all_done && m.progress == before)
            fail("deadlock: every thread waits at a barrier or warp-wide instruction");
    }
}

struct Launch {
    dim3 grid, block;
    size_t shared_bytes;
    unsigned cluster = 1;
    bool early = false;

    template <class Kernel, class... Arguments>
    void operator()(Kernel kernel, Arguments... arguments) const {
        Machine& m = machine();
        m.grid_size = grid;
        m.block_size = block;
        const unsigned step = m.together && cluster == 1 ? grid.x : cluster;
        m.cluster_size = step;
        m.early = early;
        m.body = [=] { kernel(arguments...); };
        if (grid.x % cluster != 0) fail("the grid is no whole number of clusters");
        for (unsigned z = 0; z < grid.z; ++z)
            for (unsigned y = 0; y < grid.y; ++y)
                for (unsigned x = 0; x < grid.x; x += step) {
                    for (unsigned i = 0; i < step; ++i) start_block(i, dim3(x + i, y, z), shared_bytes);
                    run_cluster();
                }
    }
};

}  // namespace emulation

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __shared__ static
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define threadIdx (dim3(::emulation::machine().current->index, 0, 0))
#define blockIdx (::emulation::this_block().index)
#define gridDim (::emulation::machine().grid_size)
#define blockDim (::emulation::machine().block_size)

using std::max;
using std::min;

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline void __syncthreads() {
    auto& m = ::emulation::machine();
    ::emulation::meet(::emulation::this_block().all, m.block_size.x, m.current->index, nullptr, [](void**) {});
}

template <class Value>
Value __shfl_xor_sync(uint32_t, Value value, int mask) {
    struct Argument {
        Value value, result;
        int from;
    } mine = {value, value, static_cast<int>(::emulation::lane()) ^ mask};
    ::emulation::warp_wide(&mine, [](void** all) {
        for (int i = 0; i < 32; ++i) {
            auto& own = *static_cast<Argument*>(all[i]);
            own.result = static_cast<Argument*>(all[own.from])->value;
        }
    });
    return mine.result;
}

template <class Value>
Value __shfl_sync(uint32_t mask, Value value, int lane) {
    return __shfl_xor_sync(mask, value, lane ^ static_cast<int>(::emulation::lane()));
}

inline bool __any_sync(uint32_t, bool predicate) {
    struct Argument {
        bool mine, any;
    } mine = {predicate, false};
    ::emulation::warp_wide(&mine, [](void** all) {
        bool any = false;
        for (int i = 0; i < 32; ++i) any = any || static_cast<Argument*>(all[i])->mine;
        for (int i = 0; i < 32; ++i) static_cast<Argument*>(all[i])->any = any;
    });
    return mine.any;
}

inline void __syncwarp() {
    ::emulation::warp_wide(nullptr, [](void**) {});
}

/// Announce an array that asynchronous copies and __ldg may read; null clears all.
extern "C" inline __attribute__((used)) void emulation_allow(const void* start, size_t bytes) {
    auto& allowed = ::emulation::machine().allowed;
    if (start == nullptr) allowed.clear();
    else allowed.emplace_back(static_cast<const char*>(start), bytes);
}

/// Asynchronous copies: 1 at once, 0 as late as their wait allows.
extern "C" inline __attribute__((used)) void emulation_eager(int eager) { ::emulation::machine().eager = eager != 0; }

/// Between barriers: 0 all warps in turns, 1 each as far as it gets from the first one on, 2 from the last one on.
extern "C" inline __attribute__((used)) void emulation_order(int order) {
    ::emulation::machine().order = static_cast<::emulation::Order>(order);
}

/// Groups of eight ldmatrix rows since the last call that did not spread over all banks.
extern "C" inline __attribute__((used)) uint64_t emulation_bank_conflicts() {
    return std::exchange(::emulation::machine().bank_conflicts, 0);
}

/// Blocks of a launch without clusters: 1 all at the same time, 0 one after the other.
extern "C" inline __attribute__((used)) void emulation_together(int all) { ::emulation::machine().together = all != 0; }

/// Whether earlier launches write the numbers that a kernel peeks at.
extern "C" inline __attribute__((used)) void emulation_stale(int stale) { ::emulation::machine().stale = stale != 0; }

/// Clusters of so many blocks and more have no room; 0: all have.
extern "C" inline __attribute__((used)) void emulation_refuse(int blocks) { ::emulation::machine().refused = blocks; }

/// How many multiprocessors host code is told of.
extern "C" inline __attribute__((used)) void emulation_processors(int count) {
    ::emulation::machine().processors = count;
}
