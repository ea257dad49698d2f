// SPDX-License-Identifier: MIT
//!KERNEL summary unfused multiply-adds, by the compiler's flag
//!KERNEL arch sm_89 sm_90a
//!KERNEL flags nvcc --fmad=false
//!KERNEL define FUSED=0
//
// As the flag has it, products and sums stay instructions of their own, each rounded.
#include "fma_contraction.h"
