// SPDX-License-Identifier: MIT
//!KERNEL summary unfused multiply-adds, by the compiler's flag
//!KERNEL arch gfx942
//!KERNEL flags clang -ffp-contract=off
//!KERNEL define FUSED=0
//
// As the flag has it, products and sums stay instructions of their own, each rounded.
#include "fma_contraction.h"
