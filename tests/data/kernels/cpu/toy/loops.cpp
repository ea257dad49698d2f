// SPDX-License-Identifier: MIT
//!KERNEL summary right, and as slow as its tunable says
//!KERNEL tune LOOPS=1,200
#include "toy.h"

TOY {
    for (volatile int loop = 0; loop < LOOPS; loop = loop + 1) honest(x, y, n, alpha);
    return 0;
}
