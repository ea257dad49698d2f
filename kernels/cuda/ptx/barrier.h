// SPDX-License-Identifier: MIT
// Barriers among some warps of a block (bar, ids 1 to 15; 0 is __syncthreads'). `threads` counts arrivals and waits alike and
// is a multiple of 32.
#pragma once

/// Arrive and wait until `threads` have arrived.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
    asm volatile("bar.sync %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

/// Arrive without waiting.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
    asm volatile("bar.arrive %0, %1;\n" ::"r"(id), "r"(threads) : "memory");
}

/// named_barrier_sync that also tells all whether any thread came with `value`.
__device__ __forceinline__ bool named_barrier_any(int id, int threads, bool value) {
    int any;
    asm volatile(
        "{ .reg .pred mine, some;\n"
        "setp.ne.s32 mine, %3, 0;\n"
        "bar.red.or.pred some, %1, %2, mine;\n"
        "selp.s32 %0, 1, 0, some; }\n"
        : "=r"(any)
        : "r"(id), "r"(threads), "r"(static_cast<int>(value))
        : "memory");
    return any != 0;
}
