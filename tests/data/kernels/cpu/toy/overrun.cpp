// SPDX-License-Identifier: MIT
//!KERNEL summary writes one byte past the workspace
#include "toy.h"

TOY {
    honest(x, y, n, alpha);
    static_cast<unsigned char*>(workspace)[workspace_bytes] = 0;
    return 0;
}
