// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

inline uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) result |= static_cast<uint32_t>(bytes >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}

template <uint32_t kSelector>
uint32_t permute_bytes(uint32_t low, uint32_t high) {
    return permute_bytes(low, high, kSelector);
}
