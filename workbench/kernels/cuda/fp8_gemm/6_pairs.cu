// SPDX-License-Identifier: MIT
//!KERNEL summary as 5, 192 x 128 tiles, pairs of blocks load common rows for each other
//!KERNEL arch sm_90a
//!KERNEL step 6 pairs of blocks, multicast
#include "instance.h"

using Shape = WgmmaShape<3, 1, 128, Tokens::kAreRows, Epilogue::kTmaStore, 2>;
LADDER_INSTANCE(Shape, 1)
