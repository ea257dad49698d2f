// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, a window of K in shared memory
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 2 a window of K in shared memory
//!KERNEL expect m=4096,n=4096,k=4096,* 6-12TFLOP/s@H200
//
// Two loads from shared memory for each multiply-add: shared memory sets the pace.
#include "sgemm.h"

SGEMM_STEP(Sliding)
