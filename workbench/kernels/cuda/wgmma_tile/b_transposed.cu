// SPDX-License-Identifier: MIT
//!KERNEL summary wgmma, B transposed in the 128-byte swizzle: N is contiguous
//!KERNEL arch sm_90a
//
// What P V of attention needs: the rows of V are keys, which are K of that product. Operands of 16 bits alone may lie so. Threads
// transpose on the way, two bytes at a time.
#include "tile.h"

struct Transposed : Swizzled<128> {
    static constexpr bool kTransposed = true;
};

WGMMA_TILE(ByThreads, Transposed)
