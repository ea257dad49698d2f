// SPDX-License-Identifier: MIT
#pragma once

#include "machine.h"

inline void grid_dependency_wait() {
    ::emulation::this_block().waited = true;
    ::emulation::machine().current->waited = true;
}
inline void grid_dependency_release() {}
