// SPDX-License-Identifier: MIT
// Stores with a policy for L2: which lines it keeps when it needs room.
#pragma once

#include <cstdint>

/// The last to go, as far as L2 has room for such lines; or as without a policy.
__device__ __forceinline__ uint64_t policy_evict_last() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;\n" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ uint64_t policy_evict_normal() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;\n" : "=l"(policy));
    return policy;
}

/// Store 16 bytes, aligned.
__device__ __forceinline__ void store_16(void* global, const uint4& x, uint64_t policy) {
    asm volatile("st.global.L2::cache_hint.v4.b32 [%0], {%1, %2, %3, %4}, %5;\n" ::"l"(global), "r"(x.x), "r"(x.y), "r"(x.z),
                 "r"(x.w), "l"(policy)
                 : "memory");
}
