// SPDX-License-Identifier: MIT
//!KERNEL summary a warp loads, two warpgroups multiply and promote in turns; a block per tile
//!KERNEL arch sm_90a
//!KERNEL step 4 a warp that loads
#include "instance.h"

using Shape = WgmmaShape<2, 1, 128, Tokens::kAreRows, Epilogue::kClusterReduce, 1, 2>;
LADDER_INSTANCE(Shape, 1)
