// SPDX-License-Identifier: MIT
// Loads from shared memory by 32-bit address, where a pointer would have the compiler derive that address again and again.
#pragma once

#include <cstdint>

/// The float at `address`. Stays where it is written: between the waits and products around it.
__device__ __forceinline__ float load_shared(uint32_t address) {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];\n" : "=f"(value) : "r"(address) : "memory");
    return value;
}
