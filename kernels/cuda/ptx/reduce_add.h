// SPDX-License-Identifier: MIT
// Additions to global memory that return nothing (red, sm_90's form of four fp32 numbers): done by L2, each of them atomic.
#pragma once

/// to[0..3] += a, b, c, d; `to` is 16-byte aligned. Nothing waits for it; a fence orders it before what follows.
__device__ __forceinline__ void reduce_add_x4(float* to, float a, float b, float c, float d) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
                 : "memory");
}
