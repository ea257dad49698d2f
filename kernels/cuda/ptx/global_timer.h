// SPDX-License-Identifier: MIT
// Nanoseconds since some moment, the same for all multiprocessors; in steps of 32 or more.
#pragma once

#include <cstdint>

__device__ __forceinline__ uint64_t global_nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;\n" : "=l"(now));
    return now;
}
