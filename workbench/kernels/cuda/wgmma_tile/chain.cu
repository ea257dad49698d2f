// SPDX-License-Identifier: MIT
//!KERNEL summary wgmma, eight products between two waits
//!KERNEL arch sm_90a
//
// As swizzle_128 with twice the bytes of K: the latency of a product is paid once for eight. FP8 takes two sums of four
// products each, since the adder is short.
#include "tile.h"

struct Chain : Swizzled<128> {
    static constexpr int kStep = 256;
};

WGMMA_TILE(ByThreads, Chain)
