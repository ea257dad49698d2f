// SPDX-License-Identifier: MIT
//!KERNEL summary as 4, other tile sizes, one stage or two
//!KERNEL arch sm_89 sm_90a
//!KERNEL tune TILE=6496,9664,6464
//!KERNEL tune STAGES=1,2
//!KERNEL step 4b other tile sizes
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 80-120us@L4
//
// TILE is queries and keys, two digits each. A larger tile reads shared memory less often for a product, and leaves room for fewer
// blocks. Two stages of the larger tiles do not fit into the 99 KB that a block of an L4 may have: declined there.
#include "wmma_copies.h"

constexpr int kQueries = TILE / 100, kKeys = TILE % 100;
static_assert(kQueries % 16 == 0 && kKeys % 16 == 0, "WMMA takes 16 rows");

template <class T>
int launch(const Call& call, void* queue) {
    return launch_step<T>(
        copied_step<T, kQueries, kKeys, STAGES>, call, kQueries, 2 * kQueries,
        sizeof(CopiedTiles<T, kQueries, kKeys, STAGES>), queue);
}

LADDER_ENTRY(launch)
