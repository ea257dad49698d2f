// SPDX-License-Identifier: MIT
//!KERNEL summary wgmma, B transposed without swizzle: core matrices of 8 k by 16 bytes
//!KERNEL arch sm_90a
//
// The leading offset is the way from eight k to the next, the stride from eight columns to the next. In the swizzled layout they
// change places.
#include "tile.h"

struct Transposed : Swizzled<0> {
    static constexpr bool kTransposed = true;
};

WGMMA_TILE(ByThreads, Transposed)
