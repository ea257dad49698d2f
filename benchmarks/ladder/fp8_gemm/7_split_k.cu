// SPDX-License-Identifier: MIT
//!KERNEL summary ladder 7: as 4, K in parts that a cluster adds up through distributed shared memory
//!KERNEL arch sm_90a
#include "instance.h"

using Shape = WgmmaShape<2, 1, 128, Tokens::kAreRows, Finish::kExchange, 1, 2>;
LADDER_INSTANCE(Shape, 0)
