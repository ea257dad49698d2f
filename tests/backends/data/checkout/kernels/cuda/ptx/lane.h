// SPDX-License-Identifier: MIT
#pragma once

__device__ __forceinline__ int lane_id() {
    int lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}
