// SPDX-License-Identifier: MIT
//!KERNEL summary leaves the last element alone
#include "toy.h"

TOY {
    honest(x, y, n - 1, alpha);
    return 0;
}
