// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, 16-byte loads
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 4 16-byte loads
//!KERNEL expect m=4096,n=4096,k=4096,* 13-22TFLOP/s@H200
//
// A quarter of the load instructions from memory; shared memory still sets the pace.
#include "sgemm.h"

SGEMM_STEP(Column<true, false>)
