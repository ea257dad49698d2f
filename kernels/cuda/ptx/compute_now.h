// SPDX-License-Identifier: MIT
// Keeps the compiler from moving a computation down to where its result is first used, or from keeping in a register what
// it has computed of a value before: no instruction.
#pragma once

__device__ __forceinline__ void compute_now(int& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void compute_now(unsigned& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void compute_now(float& value) { asm volatile("" : "+f"(value)); }

template <class T>
__device__ __forceinline__ void compute_now(T*& pointer) {
    asm volatile("" : "+l"(pointer));
}
