// SPDX-License-Identifier: MIT
// What the threads of a block and of a cluster do together: barriers, and copies that take place later.
#include <algorithm>

#include "warp.h"

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

constexpr u32 kSlow = 8;  // of so many copies of a random schedule, one waits until nothing goes on without it

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

}  // namespace emu::ptx
