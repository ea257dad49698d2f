// SPDX-License-Identifier: MIT
// Generic pointer to shared memory -> the 32-bit address that PTX's .shared operands take.
#pragma once

#include <cstdint>

/// Address of `pointer` inside the block's shared memory window, in bytes. `pointer` must point into shared memory.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
