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
