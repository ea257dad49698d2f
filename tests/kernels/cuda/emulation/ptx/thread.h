// SPDX-License-Identifier: MIT
// What a thread tells the compiler or the hardware about itself: its lane, values its warp agrees on, registers.
#pragma once

#include "hopper.h"
#include "machine.h"

inline int lane_index() { return static_cast<int>(emulation::lane()); }

inline int warp_uniform(int value) { return value; }

template <class T>
void compute_now(T&) {}

template <int kRegisters>
void take_registers() {
    emulation::warpgroup_wide(nullptr, [](emulation::Warpgroup&, void**) {});
}
template <int kRegisters>
void give_registers() {
    emulation::warpgroup_wide(nullptr, [](emulation::Warpgroup&, void**) {});
}
