// SPDX-License-Identifier: MIT
// A 16x32 by 32x8 product of e4m3 fragments, by the best mma.sync of the architecture.
//
// sm_89 has it as one instruction. sm_90 has none: there the fragments are converted to fp16 once, when loaded, and
// multiplied by two m16n8k16. The first takes bytes 0 and 1 of every register, the second bytes 2 and 3: another order of K,
// the same for both operands. fp16 holds every e4m3 value and the products are exact, so only the sum's rounding differs.
#pragma once

#include <cstdint>

#include "ptx/mma_16bit.h"
#include "ptx/mma_fp8.h"
#include "ptx/unpack_fp8.h"

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define WARPWAVE_FP8_THROUGH_FP16 1
#else
#define WARPWAVE_FP8_THROUGH_FP16 0
#endif

/// kRegisters e4m3 registers of one operand's fragment, in the form the product wants: 4 for A, 2 for B.
template <int kRegisters>
struct Fp8Fragment {
#if WARPWAVE_FP8_THROUGH_FP16
    uint32_t low[kRegisters], high[kRegisters];

    __device__ __forceinline__ void set(int i, uint32_t bytes) {
        low[i] = unpack_e4m3_low(bytes);
        high[i] = unpack_e4m3_high(bytes);
    }
#else
    uint32_t bytes[kRegisters];

    __device__ __forceinline__ void set(int i, uint32_t value) { bytes[i] = value; }
#endif
};

/// d += a * b, with d as mma.m16n8k32 and mma.m16n8k16 agree on it.
__device__ __forceinline__ void fp8_product(float (&d)[4], const Fp8Fragment<4>& a, const Fp8Fragment<2>& b) {
#if WARPWAVE_FP8_THROUGH_FP16
    Fp16::mma_m16n8k16(d, a.low, b.low[0], b.low[1]);
    Fp16::mma_m16n8k16(d, a.high, b.high[0], b.high[1]);
#else
    mma_m16n8k32_e4m3(d, a.bytes, b.bytes);
#endif
}
