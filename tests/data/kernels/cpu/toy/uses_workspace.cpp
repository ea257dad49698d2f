// SPDX-License-Identifier: MIT
//!KERNEL summary right, by way of the whole workspace
#include <string.h>
#include "toy.h"

TOY {
    memset(workspace, 0x5a, workspace_bytes);
    honest(x, y, n, alpha);
    return 0;
}
