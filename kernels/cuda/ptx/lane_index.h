// SPDX-License-Identifier: MIT
// This thread's place in its warp, read anew: where registers are few, kept nowhere.
#pragma once

__device__ __forceinline__ int lane_index() {
    int lane;
    asm volatile("mov.u32 %0, %%laneid;\n" : "=r"(lane));
    return lane;
}
