// SPDX-License-Identifier: MIT
//!KERNEL summary RMSNorm, a thread per row
//!KERNEL arch gfx942
//!KERNEL step 1 a thread per row
//
// Loads of neighbouring threads lie a row apart, so most of every 32-byte sector is thrown away.
#include "rmsnorm.h"

RMSNORM_STEP(ThreadPerRow)
