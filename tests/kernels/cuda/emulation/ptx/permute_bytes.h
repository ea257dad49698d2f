// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

template <uint32_t kSelector>
uint32_t permute_bytes(uint32_t low, uint32_t high) {
    const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) result |= static_cast<uint32_t>(bytes >> 8 * (kSelector >> 4 * i & 7) & 255) << 8 * i;
    return result;
}
