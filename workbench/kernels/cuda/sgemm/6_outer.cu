// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, outer products of 8 x 8 in registers
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 6 outer products of 8 x 8 in registers
//!KERNEL expect m=4096,n=4096,k=4096,* 22-34TFLOP/s@H200
//
// Sixteen loads from shared memory for 64 multiply-adds.
#include "sgemm.h"

SGEMM_STEP(Outer<false, false, false>)
