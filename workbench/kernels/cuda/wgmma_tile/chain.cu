// SPDX-License-Identifier: MIT
//!KERNEL summary wgmma, eight products between two waits
//!KERNEL arch sm_90a
//
// As swizzle_128 with twice the rows: the latency of a product is paid once for eight. FP8 sums would grow too long:
// declined.
#include "tile.h"

WGMMA_TILE(128, 2, false)
