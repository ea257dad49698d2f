// SPDX-License-Identifier: MIT
#pragma once

#include "hopper.h"

inline void named_barrier_arrive(int id, int threads) {
    auto& barrier = emulation::extension().named[id];
    if (barrier.arrived != 0 && barrier.threads != threads) emulation::fail("a named barrier with two thread counts");
    barrier.threads = threads;
    if (++barrier.arrived == threads) {
        barrier.arrived = 0;
        ++barrier.generation;
        ++emulation::machine().progress;
    }
}
inline void named_barrier_sync(int id, int threads) {
    auto& barrier = emulation::extension().named[id];
    const uint64_t generation = barrier.generation;
    named_barrier_arrive(id, threads);
    while (barrier.generation == generation) emulation::give_way();
}
inline bool named_barrier_any(int id, int threads, bool value) {
    auto& barrier = emulation::extension().named[id];
    bool& any = barrier.any[barrier.generation % 2];
    any = value || (barrier.arrived != 0 && any);
    named_barrier_sync(id, threads);
    return any;
}
