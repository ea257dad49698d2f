// SPDX-License-Identifier: MIT
//!KERNEL summary wgmma, no swizzle: core matrices of 8 rows by 16 bytes
//!KERNEL arch sm_90a
//
// Eight lanes of a copy write 16 bytes each into one core matrix, 128 bytes in a row: no conflict, but a product per
// copy.
#include "tile.h"

WGMMA_TILE(ByThreads, Swizzled<0>)
