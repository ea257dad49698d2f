// SPDX-License-Identifier: MIT
//!KERNEL summary returns error code 7
#include "toy.h"

TOY {
    honest(x, y, n, alpha);
    return 7;
}
