// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, A transposed in shared memory
//!KERNEL arch gfx942
//!KERNEL step 8 A transposed in shared memory
//
// Four loads of 16 bytes for 64 multiply-adds, none with a bank conflict.
#include "sgemm.h"

SGEMM_STEP(Outer<true, true, false>)
