// SPDX-License-Identifier: MIT
//!KERNEL summary writes one byte before y
#include "toy.h"

TOY {
    honest(x, y, n, alpha);
    reinterpret_cast<unsigned char*>(y)[-1] ^= 1;
    return 0;
}
