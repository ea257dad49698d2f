// SPDX-License-Identifier: MIT
// v_perm_b32: any four bytes of two registers.
#pragma once

#include "isa/types.h"

/// Byte i of the result is byte `(selector >> 8 * i) & 7` of the eight bytes {low (0-3), high (4-7)}.
__device__ __forceinline__ uint32_t byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
    return __builtin_amdgcn_perm(high, low, selector);
}
