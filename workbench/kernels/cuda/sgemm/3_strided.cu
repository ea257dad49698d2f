// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, sixteen outputs a thread
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 3 sixteen outputs a thread
//!KERNEL expect m=4096,n=4096,k=4096,* 12-20TFLOP/s@H200
//
// Seventeen loads from shared memory for sixteen multiply-adds, sixteen of which are broadcasts.
#include "sgemm.h"

SGEMM_STEP(Column<false, false>)
