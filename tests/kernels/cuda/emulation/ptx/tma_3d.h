// SPDX-License-Identifier: MIT
#pragma once

#include "hopper.h"

inline void tma_load_3d(uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2) {
    emulation::load_box_5d(shared, map, barrier, {x0, x1, x2, 0, 0});
}
inline void tma_load_3d(uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, uint64_t) {
    tma_load_3d(shared, map, barrier, x0, x1, x2);
}
inline void tma_load_3d_multicast(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, uint16_t ranks) {
    auto& m = emulation::machine();
    if (ranks >> m.cluster_size != 0) emulation::fail("a multicast to blocks the cluster does not have");
    for (unsigned rank = 0; rank < m.cluster_size; ++rank)
        if (ranks >> rank & 1) emulation::load_box_5d(*m.blocks[rank], shared, map, barrier, {x0, x1, x2, 0, 0});
}
inline void tma_load_3d_multicast(
    uint32_t shared, const TensorMap& map, uint32_t barrier, int x0, int x1, int x2, uint16_t ranks, uint64_t) {
    tma_load_3d_multicast(shared, map, barrier, x0, x1, x2, ranks);
}
