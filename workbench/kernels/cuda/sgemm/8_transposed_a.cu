// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, A transposed in shared memory
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 8 A transposed in shared memory
//!KERNEL expect m=4096,n=4096,k=4096,* 36-48TFLOP/s@H200
//
// Four loads of 16 bytes for 64 multiply-adds, none with a bank conflict.
#include "sgemm.h"

SGEMM_STEP(Outer<true, true, false>)
