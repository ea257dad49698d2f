// SPDX-License-Identifier: MIT
// Counters and flags in global memory that the blocks of a launch share: atomic additions, ordered loads and stores, fences.
#pragma once

#include "machine.h"

/// Blocks run one cluster after the other, so that an ordinary addition does.
inline unsigned fetch_add(unsigned* number, unsigned value) {
    ::emulation::touch_global();
    const unsigned before = *number;
    *number += value;
    return before;
}
inline unsigned long long fetch_add_wide(unsigned long long* number, unsigned long long value) {
    return std::exchange(*number, *number + value);
}

// Blocks run one after the other here: who waits for a block that did not run before ends in a deadlock, which is reported.

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
inline void raise_count_relaxed(int* count) { raise_count(count); }
inline float4 load_from_l2(const float* from) { return *reinterpret_cast<const float4*>(from); }
inline void fence_between() {}
inline unsigned look_at(const unsigned* number) {
    static long looks = 0;
    if (++looks > 100000000) emulation::fail("deadlock: a number that is not raised");
    ++emulation::machine().progress;  // whoever looks again lets others go on
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
