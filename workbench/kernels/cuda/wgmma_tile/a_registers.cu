// SPDX-License-Identifier: MIT
//!KERNEL summary wgmma, A from registers, B in the 128-byte swizzle
//!KERNEL arch sm_90a
//
// A does not pass through shared memory: 4 registers a thread and product.
#include "tile.h"

struct Registers : Swizzled<128> {
    static constexpr bool kRegisters = true;
};

WGMMA_TILE(ByThreads, Registers)
