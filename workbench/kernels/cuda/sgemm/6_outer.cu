// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, outer products of 8 x 8 in registers
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 6 outer products of 8 x 8 in registers
//
// Sixteen loads from shared memory for 64 multiply-adds.
#include "sgemm.h"

SGEMM_STEP(Outer<false, false, false>)
