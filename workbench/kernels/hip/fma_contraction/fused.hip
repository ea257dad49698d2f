// SPDX-License-Identifier: MIT
//!KERNEL summary fused multiply-adds, by the compiler's flag
//!KERNEL arch gfx942
//!KERNEL flags clang -ffp-contract=fast
//!KERNEL define FUSED=1
//
// As the flag has it, a product and the sum behind it become one instruction, rounded once.
#include "fma_contraction.h"
