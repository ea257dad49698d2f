// SPDX-License-Identifier: MIT
//!KERNEL summary dies of a signal that has no name
#include <signal.h>
#include <unistd.h>
#include "toy.h"

TOY {
    kill(getpid(), 40);
    pause();
    return 0;
}
