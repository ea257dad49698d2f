// SPDX-License-Identifier: MIT
// A load from global memory that is issued where it is written: the compiler moves loads down to where their values are used,
// behind waits for other loads, where it finds registers scarce.
#pragma once

/// 16 bytes, 16-byte aligned.
__device__ __forceinline__ float4 load_now(const float4* from) {
    float4 x;
    asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];\n" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "l"(from));
    return x;
}
__device__ __forceinline__ float load_now(const float* from) {
    float x;
    asm volatile("ld.global.f32 %0, [%1];\n" : "=f"(x) : "l"(from));
    return x;
}
