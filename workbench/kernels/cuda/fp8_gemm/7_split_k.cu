// SPDX-License-Identifier: MIT
//!KERNEL summary as 4, K in parts that a cluster adds up through distributed shared memory
//!KERNEL arch sm_90a
//!KERNEL step 7 as 4, with K split over a cluster
#include "instance.h"

using Shape = WgmmaShape<2, 1, 128, Tokens::kAreRows, Epilogue::kClusterReduce, 1, 2>;
LADDER_INSTANCE(Shape, 0)
