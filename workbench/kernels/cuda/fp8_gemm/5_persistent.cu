// SPDX-License-Identifier: MIT
//!KERNEL summary as 4, blocks walk over tiles in bands, and a tile leaves by TMA during the next one
//!KERNEL arch sm_90a
//!KERNEL step 5 persistent blocks, stores by TMA
#include "instance.h"

using Shape = WgmmaShape<2, 1, 128, Tokens::kAreRows, Epilogue::kTmaStore, 1, 2>;
LADDER_INSTANCE(Shape, 1)
