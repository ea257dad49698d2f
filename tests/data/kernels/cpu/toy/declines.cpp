// SPDX-License-Identifier: MIT
//!KERNEL summary declines every shape
#include "../../../../../kernels/common/status.h"
#include "toy.h"

TOY {
    return kUnsupportedShape;
}
