// SPDX-License-Identifier: MIT
//!KERNEL summary leaves with exit code 3
#include <unistd.h>
#include "toy.h"

TOY {
    _exit(3);
}
