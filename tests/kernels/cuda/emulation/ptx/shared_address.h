// SPDX-License-Identifier: MIT
#pragma once

#include "machine.h"

inline uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(static_cast<const uint8_t*>(pointer) - emulation::this_block().shared.data());
}
inline uint8_t* dynamic_shared() { return emulation::this_block().shared.data(); }
inline uint8_t* swizzled_shared() { return dynamic_shared(); }
