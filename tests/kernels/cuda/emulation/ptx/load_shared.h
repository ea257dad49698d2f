// SPDX-License-Identifier: MIT
#pragma once

#include "machine.h"

inline float load_shared(uint32_t address) {
    float value;
    std::memcpy(&value, emulation::shared_at(address, 4, 4), 4);
    return value;
}
