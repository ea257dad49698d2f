// SPDX-License-Identifier: MIT
//!KERNEL summary never returns
#include <unistd.h>
#include "toy.h"

TOY {
    for (;;) pause();
}
