// SPDX-License-Identifier: MIT
//!KERNEL summary does not compile
#include "toy.h"

TOY {
    honest(x, y, n, alpha)
    return 0;
}
