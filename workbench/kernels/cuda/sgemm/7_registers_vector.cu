// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, B's numbers by 16-byte loads
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 7 B's numbers by 16-byte loads
//!KERNEL expect m=4096,n=4096,k=4096,* 28-40TFLOP/s@H200
//
// Ten loads for 64 multiply-adds: two of 16 bytes and eight of four.
#include "sgemm.h"

SGEMM_STEP(Outer<true, false, false>)
