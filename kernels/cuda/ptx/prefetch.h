// SPDX-License-Identifier: MIT
// Requests to bring global memory into L2: hints, which nothing waits for.
#pragma once

#include <cstdint>

/// The line at `global`.
__device__ __forceinline__ void prefetch_l2(const void* global) {
    asm volatile("prefetch.global.L2 [%0];\n" ::"l"(global) : "memory");
}
