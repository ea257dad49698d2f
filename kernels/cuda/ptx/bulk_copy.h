// SPDX-License-Identifier: MIT
// Plain bulk copies from global to shared memory (cp.async.bulk, sm_90): contiguous bytes, issued by one thread.
//
// Both addresses and the count are multiples of 16. The bytes are reported to an mbarrier that expects them.
#pragma once

#include <cstdint>

/// Copy `bytes` from `global` to `shared` of this block and count them at `barrier`.
__device__ __forceinline__ void bulk_copy(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(shared),
        "l"(global), "r"(bytes), "r"(barrier)
        : "memory");
}
