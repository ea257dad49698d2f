// SPDX-License-Identifier: MIT
//!KERNEL summary RMSNorm, a warp per row
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 2 a warp per row
//
// Loads of neighbouring lanes are neighbours in memory; the sum needs shuffles.
#include "rmsnorm.h"

RMSNORM_STEP(WarpPerRow)
