// SPDX-License-Identifier: MIT
#pragma once

#include "hopper.h"

inline void tma_load_5d(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, int x3, int x4) {
    emulation::load_box_5d(emulation::this_block(), shared, map, barrier, {x0, x1, x2, x3, x4});
}
inline void tma_load_5d_multicast(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, int x3, int x4, uint16_t ranks) {
    auto& m = emulation::machine();
    if (ranks >> m.cluster_size != 0) emulation::fail("a multicast to blocks the cluster does not have");
    for (unsigned rank = 0; rank < m.cluster_size; ++rank)
        if (ranks >> rank & 1) emulation::load_box_5d(*m.blocks[rank], shared, map, barrier, {x0, x1, x2, x3, x4});
}
inline void tma_prefetch_5d(const TensorMap&, int, int, int, int, int) {}
