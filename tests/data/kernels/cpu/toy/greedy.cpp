// SPDX-License-Identifier: MIT
//!KERNEL summary wants more workspace
#include "../../../../../kernels/common/status.h"
#include "toy.h"

TOY {
    return kWorkspaceTooSmall;
}
