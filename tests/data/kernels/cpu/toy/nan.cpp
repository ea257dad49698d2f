// SPDX-License-Identifier: MIT
//!KERNEL summary writes NaN to one element
#include <math.h>
#include "toy.h"

TOY {
    honest(x, y, n, alpha);
    y[n / 2] = NAN;
    return 0;
}
