// SPDX-License-Identifier: MIT
#pragma once

#include "machine.h"

inline int lane_index() { return static_cast<int>(emulation::lane()); }
