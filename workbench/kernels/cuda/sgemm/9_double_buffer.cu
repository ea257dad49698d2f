// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, two buffers
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 9 two buffers
//!KERNEL expect m=4096,n=4096,k=4096,* 42-56TFLOP/s@H200
//
// Loads from memory are under way during the products, and a window has one barrier.
#include "sgemm.h"

SGEMM_STEP(Outer<true, true, true>)
