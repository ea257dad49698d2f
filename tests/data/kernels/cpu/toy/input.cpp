// SPDX-License-Identifier: MIT
//!KERNEL summary changes the sign of one input
#include "toy.h"

TOY {
    honest(x, y, n, alpha);
    const_cast<float*>(x)[n - 1] *= -1;
    return 0;
}
