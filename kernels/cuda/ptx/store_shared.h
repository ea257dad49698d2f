// SPDX-License-Identifier: MIT
// Stores to shared memory by its 32-bit address.
#pragma once

#include <cstdint>

/// 16 bytes, aligned.
__device__ __forceinline__ void store_shared(uint32_t shared, const uint4& x) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"r"(shared), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}
