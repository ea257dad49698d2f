// SPDX-License-Identifier: MIT
//!KERNEL summary right
#include "toy.h"

TOY {
    honest(x, y, n, alpha);
    return 0;
}
