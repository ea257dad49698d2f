// SPDX-License-Identifier: MIT
//!KERNEL summary RMSNorm, 16-byte loads, row in registers
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 4 16-byte loads, row in registers
//
// An eighth of the load instructions, and every byte is read once.
#include "rmsnorm.h"

RMSNORM_STEP(VectorPerRow)
