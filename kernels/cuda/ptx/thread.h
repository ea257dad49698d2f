// SPDX-License-Identifier: MIT
// What a thread tells the compiler, the hardware or its warp about itself: its lane, values the warp agrees on or adds up, registers.
#pragma once

#include <cstdint>

// This thread's place in its warp, read anew: where registers are few, kept nowhere.

__device__ __forceinline__ int lane_index() {
    int lane;
    asm volatile("mov.u32 %0, %%laneid;\n" : "=r"(lane));
    return lane;
}

// A value that all lanes of a warp agree on, in a form that shows the compiler so: it can then live in uniform registers.

__device__ __forceinline__ int warp_uniform(int value) { return __shfl_sync(0xffffffffu, value, 0); }

/// The sum of this lane's value and of those of the lanes before it.
__device__ __forceinline__ int sum_up_to(int lane, int value) {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, value, step);
        value += lane >= step ? other : 0;
    }
    return value;
}

// Keeps the compiler from moving a computation down to where its result is first used, or from keeping in a register what
// it has computed of a value before: no instruction.

__device__ __forceinline__ void compute_now(int& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void compute_now(unsigned& value) { asm volatile("" : "+r"(value)); }
__device__ __forceinline__ void compute_now(float& value) { asm volatile("" : "+f"(value)); }

template <class T>
__device__ __forceinline__ void compute_now(T*& pointer) {
    asm volatile("" : "+l"(pointer));
}

// Registers handed from one warpgroup to another (setmaxnreg, sm_90).
//
// All warps of a warpgroup execute it. Counts are multiples of 8 from 24 to 256; a warpgroup that asks for more waits until
// enough were given up. The kernel must have been compiled with a register limit, as __launch_bounds__ sets.

template <int kRegisters>
__device__ __forceinline__ void take_registers() {
    static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0, "what setmaxnreg accepts");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void give_registers() {
    static_assert(kRegisters >= 24 && kRegisters <= 256 && kRegisters % 8 == 0, "what setmaxnreg accepts");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(kRegisters));
}
