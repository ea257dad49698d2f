// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <cstring>

inline void store_shared(uint32_t shared, const uint4& x) {
    std::memcpy(emulation::shared_at(shared, 16, 16), &x, 16);
}
