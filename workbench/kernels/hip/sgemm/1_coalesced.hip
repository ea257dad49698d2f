// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM, a thread per output, coalesced
//!KERNEL arch gfx942
//!KERNEL step 1 a thread per output, coalesced
//
// Every element of A is read n times and of B m times, from L1 and L2 for the most part: caches set the pace.
#include "sgemm.h"

SGEMM_STEP(Coalesced)
