// SPDX-License-Identifier: MIT
//!KERNEL summary wgmma, two blocks of a cluster share A by TMA's multicast
//!KERNEL arch sm_90a
//
// As tma, but A is read from memory once for two blocks, each of which takes other columns of the tile.
#include "tma_tile.h"

struct Cluster : Swizzled<128> {
    static constexpr int kBlocks = 2;
};

WGMMA_TILE(ByTma, Cluster)
