// SPDX-License-Identifier: MIT
//!KERNEL summary ladder 5: as 4, blocks walk over tiles in bands, and a tile leaves by TMA during the next one
//!KERNEL arch sm_90a
#include "instance.h"

using Shape = WgmmaShape<2, 1, 128, Tokens::kAreRows, Finish::kBoxes, 1, 2>;
LADDER_INSTANCE(Shape, 1)
