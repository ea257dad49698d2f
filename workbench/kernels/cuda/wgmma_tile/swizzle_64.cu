// SPDX-License-Identifier: MIT
//!KERNEL summary wgmma, rows of 64 bytes in the 64-byte swizzle
//!KERNEL arch sm_90a
//
// Two products per row; pieces change places every two rows.
#include "tile.h"

WGMMA_TILE(ByThreads, Swizzled<64>)
