// SPDX-License-Identifier: MIT
//!KERNEL summary writes one byte after y
#include "toy.h"

TOY {
    honest(x, y, n, alpha);
    reinterpret_cast<unsigned char*>(y + n)[0] ^= 1;
    return 0;
}
