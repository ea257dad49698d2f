// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, B by columns: bank conflicts on purpose
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 5 B by columns: bank conflicts on purpose
//!KERNEL expect m=4096,n=4096,k=4096,* 6-14TFLOP/s@H200
//
// The step that shows a fault: lanes read B 64 bytes apart, so that they wait for each other at two banks of 32.
#include "sgemm.h"

SGEMM_STEP(Column<true, true>)
