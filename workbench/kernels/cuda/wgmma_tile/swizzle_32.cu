// SPDX-License-Identifier: MIT
//!KERNEL summary wgmma, rows of 32 bytes in the 32-byte swizzle
//!KERNEL arch sm_90a
//
// A row is one product long; pieces change places by the 128-byte line, that is every four rows.
#include "tile.h"

WGMMA_TILE(ByThreads, Swizzled<32>)
