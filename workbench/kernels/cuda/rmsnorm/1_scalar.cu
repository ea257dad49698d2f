// SPDX-License-Identifier: MIT
//!KERNEL summary RMSNorm, a thread per row
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 1 a thread per row
//
// Loads of neighbouring threads lie a row apart, so most of every 32-byte sector is thrown away.
#include "rmsnorm.h"

RMSNORM_STEP(ThreadPerRow)
