// SPDX-License-Identifier: MIT
//!KERNEL summary ladder 4: a warp loads, two warpgroups multiply and promote in turns; a block per tile
//!KERNEL arch sm_90a
#include "instance.h"

using Shape = WgmmaShape<2, 1, 128, Tokens::kAreRows, Finish::kExchange, 1, 2>;
LADDER_INSTANCE(Shape, 1)
