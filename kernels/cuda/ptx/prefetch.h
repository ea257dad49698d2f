// SPDX-License-Identifier: MIT
// Requests to bring global memory into L2: hints, which nothing waits for.
#pragma once

#include <cstdint>

/// The line at `global`.
__device__ __forceinline__ void prefetch_l2(const void* global) {
    asm volatile("prefetch.global.L2 [%0];\n" ::"l"(global) : "memory");
}

/// `bytes` from `global` on, both multiples of 16. One thread.
__device__ __forceinline__ void prefetch_l2(const void* global, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;\n" ::"l"(global), "r"(bytes) : "memory");
}
