// SPDX-License-Identifier: MIT
// Barriers among some warps of a block (bar, ids 1 to 15; 0 is __syncthreads'). `threads` counts arrivals and waits alike and
// is a multiple of 32.
#pragma once

#include <cstdint>

/// Arrive and wait until `threads` have arrived.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

/// Arrive without waiting.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

/// Arrive, wait until `threads` have arrived, and learn whether any of them brought `mine`.
__device__ __forceinline__ bool named_barrier_any(int id, int threads, bool mine) {
    uint32_t any;
    asm volatile(
        "{ .reg .pred mine, any;\nsetp.ne.u32 mine, %3, 0;\nbarrier.cta.red.or.pred.aligned any, %1, %2, mine;\n"
        "selp.u32 %0, 1, 0, any; }\n"
        : "=r"(any)
        : "r"(id), "r"(threads), "r"(static_cast<uint32_t>(mine))
        : "memory");
    return any != 0;
}
