// SPDX-License-Identifier: MIT
//!KERNEL summary calls abort
#include <stdio.h>
#include <stdlib.h>
#include "toy.h"

TOY {
    fputs("about to abort\n", stderr);
    abort();
}
