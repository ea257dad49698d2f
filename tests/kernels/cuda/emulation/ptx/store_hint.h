// SPDX-License-Identifier: MIT
// Policies change nothing here; stores that L2 is to keep are counted.
#pragma once

#include <atomic>

#include "machine.h"

namespace emulation {
inline std::atomic<long long> kept_stores{0};
}
extern "C" __attribute__((used)) inline long long emulation_kept() { return emulation::kept_stores.exchange(0); }

inline uint64_t policy_evict_last() { return 2; }
inline uint64_t policy_evict_normal() { return 0; }
inline void store_16(void* global, const uint4& x, uint64_t policy) {
    *static_cast<uint4*>(global) = x;
    emulation::kept_stores += policy == 2 ? 1 : 0;
}
