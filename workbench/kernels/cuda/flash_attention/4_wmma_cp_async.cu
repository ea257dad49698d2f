// SPDX-License-Identifier: MIT
//!KERNEL summary as 3, tiles brought by cp.async, double-buffered
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 4 cp.async, two stages
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 0-40us@L4
//
// Keys and values of the next tile are on their way (16 bytes a copy) while this one is multiplied; one barrier per tile.
#include "wmma_copies.h"

constexpr int kQueries = 64, kKeys = 64, kStages = 2;

template <class T>
int launch(const Call& call, void* queue) {
    return launch_step<T>(
        copied_step<T, kQueries, kKeys, kStages>, call, kQueries, 2 * kQueries,
        sizeof(CopiedTiles<T, kQueries, kKeys, kStages>), queue);
}

LADDER_ENTRY(launch)
