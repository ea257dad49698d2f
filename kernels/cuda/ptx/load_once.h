// SPDX-License-Identifier: MIT
// Loads of global memory that a kernel reads once and does not write: past L1.
#pragma once

#include <cstdint>

/// 16 bytes, aligned. In program order with others of their kind, so that a caller decides which are under way together.
__device__ __forceinline__ uint4 load_once(const void* global) {
    uint4 x;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(global));
    return x;
}
