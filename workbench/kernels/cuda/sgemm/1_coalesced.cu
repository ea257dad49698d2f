// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, a thread per output, coalesced
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 1 a thread per output, coalesced
//!KERNEL expect m=4096,n=4096,k=4096,* 4-8TFLOP/s@H200
//
// Every element of A is read n times and of B m times, from L1 and L2 for the most part: caches set the pace.
#include "sgemm.h"

SGEMM_STEP(Coalesced)
