// SPDX-License-Identifier: MIT
//!KERNEL summary ladder 6: as 5, 192 x 128 tiles, pairs of blocks load common rows for each other
//!KERNEL arch sm_90a
#include "instance.h"

using Shape = WgmmaShape<3, 1, 128, Tokens::kAreRows, Finish::kBoxes, 2>;
LADDER_INSTANCE(Shape, 1)
