// SPDX-License-Identifier: MIT
// Blocks run one after the other here: whose turn it is must already be settled when a block looks.
#pragma once

#include "machine.h"

inline int take_number(int* counter) { return (*counter)++; }
inline void fence_device() {}
inline void wait_for_turn(const int* turn, int number) {
    if (*turn != number) emulation::fail("a block waits for the turn of one that did not run before it");
}
inline void pass_turn(int* turn, int number) { *turn = number; }
