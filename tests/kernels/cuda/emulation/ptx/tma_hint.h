// SPDX-License-Identifier: MIT
// Policies change nothing here.
#pragma once

#include "ptx/tma.h"

inline uint64_t policy_evict_first() { return 1; }
inline void tma_load(uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y, uint64_t) {
    tma_load(shared, map, barrier, x, y);
}
inline void tma_load_multicast(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y, uint16_t ranks, uint64_t) {
    tma_load_multicast(shared, map, barrier, x, y, ranks);
}
