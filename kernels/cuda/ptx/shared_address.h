// SPDX-License-Identifier: MIT
// Generic pointer to shared memory -> the 32-bit address that PTX's .shared operands take.
#pragma once

#include <cstdint>

/// Address of `pointer` inside the block's shared memory window, in bytes. `pointer` must point into shared memory.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// The block's dynamic shared memory: the byte count of the launch, 128-byte aligned.
__device__ __forceinline__ uint8_t* dynamic_shared() {
    extern __shared__ __align__(128) uint8_t dynamic_shared_bytes[];
    return dynamic_shared_bytes;
}

/// The same memory in kernels that use TMA's swizzles, whose patterns repeat every 1024 bytes: aligned to that.
__device__ __forceinline__ uint8_t* swizzled_shared() {
    extern __shared__ __align__(1024) uint8_t swizzled_shared_bytes[];
    return swizzled_shared_bytes;
}
