// SPDX-License-Identifier: MIT
// Blocks run one after the other here: who waits for a block that did not run before ends in a deadlock, which is reported.
#pragma once

#include "machine.h"

inline int take_number(int* counter) { return (*counter)++; }
inline void fence_device() {}
inline void wait_for_turn(const int* turn, int number) {
    while (*turn != number) emulation::give_way();
    ++emulation::machine().progress;
}
inline void pass_turn(int* turn, int number) {
    *turn = number;
    ++emulation::machine().progress;
}
inline void wait_for_count(const int* count, int number) {
    while (*count < number) emulation::give_way();
    ++emulation::machine().progress;
}
inline void raise_count(int* count) {
    ++*count;
    ++emulation::machine().progress;
}
inline float4 load_from_l2(const float* from) { return *reinterpret_cast<const float4*>(from); }
inline void fence_between() {}
inline unsigned look_at(const unsigned* number) {
    static long looks = 0;
    if (++looks > 100000000) emulation::fail("deadlock: a number that is not raised");
    ++emulation::machine().progress;   // whoever looks again lets others go on
    emulation::give_way();
    return *number;
}
inline int peek(const int* number) {
    const auto& machine = emulation::machine();
    return machine.stale && !machine.current->waited ? *number / 2 + 1 : *number;
}
inline unsigned long long look_at_wide(const unsigned long long* number) {
    static long looks = 0;
    if (++looks > 100000000) emulation::fail("deadlock: a number that is not raised");
    ++emulation::machine().progress;
    emulation::give_way();
    return *number;
}
