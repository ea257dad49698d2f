// SPDX-License-Identifier: MIT
//!KERNEL summary writes to address 8
#include "toy.h"

TOY {
    *reinterpret_cast<volatile float*>(8) = alpha;
    return 0;
}
