// SPDX-License-Identifier: MIT
#pragma once

#include "hopper.h"

template <int kRegisters>
void take_registers() {
    emulation::warpgroup_wide(nullptr, [](emulation::Warpgroup&, void**) {});
}
template <int kRegisters>
void give_registers() {
    emulation::warpgroup_wide(nullptr, [](emulation::Warpgroup&, void**) {});
}
