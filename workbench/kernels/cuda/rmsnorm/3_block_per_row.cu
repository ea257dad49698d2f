// SPDX-License-Identifier: MIT
//!KERNEL summary RMSNorm, a block per row
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 3 a block per row
//
// More threads for a row: a few long rows fill more of the GPU.
#include "rmsnorm.h"

RMSNORM_STEP(BlockPerRow)
