// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, two buffers
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 9 two buffers
//
// Loads from memory are under way during the products, and a window has one barrier.
#include "sgemm.h"

SGEMM_STEP(Outer<true, true, true>)
