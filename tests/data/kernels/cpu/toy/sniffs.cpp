// SPDX-License-Identifier: MIT
//!KERNEL summary writes only what is NaN, as freshly poisoned outputs may be
#include "toy.h"

TOY {
    for (int i = 0; i < n; ++i) {
        if (y[i] != y[i]) y[i] = alpha * x[i];
    }
    return 0;
}
