// SPDX-License-Identifier: MIT
#pragma once

#include "machine.h"

inline uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(static_cast<const uint8_t*>(pointer) - emulation::machine().shared.data());
}
inline uint8_t* dynamic_shared() { return emulation::machine().shared.data(); }
