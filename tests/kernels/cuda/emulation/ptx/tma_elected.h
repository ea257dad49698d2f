// SPDX-License-Identifier: MIT
#pragma once

#include "ptx/tma_hint.h"

inline uint64_t policy_evict_normal() { return 0; }
inline void tma_load_elected(uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y, uint64_t) {
    if (emulation::lane() == 0) tma_load(shared, map, barrier, x, y);
}
inline void tma_load_multicast_elected(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x, int y, uint16_t ranks, uint64_t) {
    if (emulation::lane() == 0) tma_load_multicast(shared, map, barrier, x, y, ranks);
}
