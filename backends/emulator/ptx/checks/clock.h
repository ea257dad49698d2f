// SPDX-License-Identifier: MIT
// What an actor knows of the others: up to when their accesses are ordered before what it does now.
//
// Actors of a cluster are its warps, and what works beside them: the products of a warpgroup, the cp.async of a warp, the
// copies that an mbarrier announces, the bulk stores of a thread. Each has times of its own, which only grow.
#pragma once

#include <algorithm>
#include <vector>

#include "../types.h"

namespace emu::ptx {

/// Of one actor: accesses of all lanes up to `all` are known, those of `lane` up to `one`.
struct Entry {
    u32 all = 0, one = 0;
    u8 lane = 0;
    bool covers(u32 time, int of) const { return time <= all || (time <= one && of == lane); }
    void join(const Entry& other) {
        all = std::max(all, other.all);
        if (other.one <= all) {
            if (one <= all) one = 0;
            return;
        }
        // Of two lanes one is kept exactly. The other's share goes to all: a race may be missed, none is invented.
        if (one > all && lane != other.lane) all = std::max(all, std::min(one, other.one));
        if (other.one > one || one <= all) one = other.one, lane = other.lane;
    }
};

using Entries = std::vector<Entry>;

inline void join(Entries& into, const Entries& from) {
    if (into.size() < from.size()) into.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) into[i].join(from[i]);
}
inline Entry& entry(Entries& all, u32 actor) {
    if (all.size() <= actor) all.resize(actor + 1);
    return all[actor];
}

/// `fenced`: of what is known, what a fence.proxy.async for shared memory stands behind, so that the async proxy sees it;
/// `fenced_global`: likewise for global memory.
struct Clock {
    Entries known, fenced, fenced_global;
    void join(const Clock& other) {
        ptx::join(known, other.known);
        ptx::join(fenced, other.fenced);
        ptx::join(fenced_global, other.fenced_global);
    }
};

/// What a barrier hands on: what those knew who have arrived, and what they knew who ended its last phase.
struct Handed {
    Clock now, seen;
    u32 actor = 0, base = 0;  // of an mbarrier: its copies' actor, and phases before it was initialised again
};

}  // namespace emu::ptx
