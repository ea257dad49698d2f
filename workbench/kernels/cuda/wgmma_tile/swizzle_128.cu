// SPDX-License-Identifier: MIT
//!KERNEL summary wgmma, rows of 128 bytes in the 128-byte swizzle
//!KERNEL arch sm_90a
//
// Four products per row; pieces change places with every row: what TMA leaves, and what kernels use.
#include "tile.h"

WGMMA_TILE(ByThreads, Swizzled<128>)
