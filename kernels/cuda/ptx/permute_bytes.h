// SPDX-License-Identifier: MIT
// Byte selection from a register pair (prmt).
#pragma once

#include <cstdint>

/// Byte i of the result is byte (kSelector >> 4i) & 7 of the eight bytes low[0..3], high[0..3].
template <uint32_t kSelector>
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high) {
    static_assert((kSelector & ~0x7777u) == 0, "four nibbles of 0..7: bit 3 would replicate a sign, which is not meant");
    uint32_t result;
    asm("prmt.b32 %0, %1, %2, %3;\n" : "=r"(result) : "r"(low), "r"(high), "n"(kSelector));
    return result;
}

/// The same with a selector that differs between lanes; its nibbles are 0 to 7, too.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    uint32_t result;
    asm("prmt.b32 %0, %1, %2, %3;\n" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
    return result;
}
