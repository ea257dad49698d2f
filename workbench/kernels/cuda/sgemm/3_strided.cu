// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, sixteen outputs a thread
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 3 sixteen outputs a thread
//
// Seventeen loads from shared memory for sixteen multiply-adds, sixteen of which are broadcasts.
#include "sgemm.h"

SGEMM_STEP(Column<false, false>)
