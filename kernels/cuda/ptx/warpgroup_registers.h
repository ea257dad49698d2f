// SPDX-License-Identifier: MIT
// Registers handed from one warpgroup to another (setmaxnreg, sm_90).
//
// All warps of a warpgroup execute it. Counts are multiples of 8 from 24 to 256; a warpgroup that asks for more waits until
// enough were given up. The kernel must have been compiled with a register limit, as __launch_bounds__ sets.
#pragma once

#include <cstdint>

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
