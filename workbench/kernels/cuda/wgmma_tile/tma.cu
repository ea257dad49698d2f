// SPDX-License-Identifier: MIT
//!KERNEL summary wgmma, operands by TMA in the 128-byte swizzle
//!KERNEL arch sm_90a
//
// As swizzle_128, but one thread issues two instructions in place of 128 threads that copy.
#include "tma_tile.h"

WGMMA_TILE(ByTma, Swizzled<128>)
