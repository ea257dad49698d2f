// SPDX-License-Identifier: MIT
// Warp-wide tensor core products (mma.sync): 16-bit elements on sm_80 and later, FP8 on sm_89.
#pragma once

#include <cstdint>

// The warp-wide 16-bit tensor core product mma.sync.m16n8k16 with fp32 accumulation (sm_80 and later), for bf16 and fp16.
//
// With g = lane / 4 and t = lane % 4 a lane holds (lower element in the low half of a register)
//   a[0] = A[g][2t, 2t+1]   a[1] = A[g+8][2t, 2t+1]   a[2] = A[g][2t+8, 2t+9]   a[3] = A[g+8][2t+8, 2t+9]
//   b0   = B[2t, 2t+1][g]   b1   = B[2t+8, 2t+9][g]
//   d[0] = D[g][2t]   d[1] = D[g][2t+1]   d[2] = D[g+8][2t]   d[3] = D[g+8][2t+1]
// Two neighbouring 16x8 accumulators, rounded and packed in pairs, are thus the A operand of a product over their 16
// columns without any exchange between lanes.
//
// Hopper runs it at about 60 % of the wgmma rate.

/// bf16 operands.
struct Bf16 {
    /// d += a * b
    static __device__ __forceinline__ void mma_m16n8k16(
        float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }

    /// Round both to nearest even; `low` lands in the lower half.
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        uint32_t result;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(result) : "f"(high), "f"(low));
        return result;
    }
};

/// fp16 operands.
struct Fp16 {
    /// d += a * b
    static __device__ __forceinline__ void mma_m16n8k16(
        float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }

    /// Round both to nearest even; `low` lands in the lower half. Overflows to infinity above 65504.
    static __device__ __forceinline__ uint32_t pack(float low, float high) {
        uint32_t result;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(result) : "f"(high), "f"(low));
        return result;
    }
};

// The warp-wide FP8 tensor core product of sm_89: mma.sync.m16n8k32, e4m3 by e4m3 into fp32.
//
// With g = lane / 4 and t = lane % 4 a lane holds (lowest byte first)
//   a[0] = A[g][4t .. 4t+3]   a[1] = A[g+8][4t .. 4t+3]   a[2] = A[g][16+4t .. +3]   a[3] = A[g+8][16+4t .. +3]
//   b[0] = B[4t .. 4t+3][g]   b[1] = B[16+4t .. +3][g]
//   d[0] = D[g][2t]   d[1] = D[g][2t+1]   d[2] = D[g+8][2t]   d[3] = D[g+8][2t+1]
// The order of K is free as long as A and B agree on it.
//
// sm_89 executes it as one QMMA. Its adder keeps about 13 fraction bits, so sums longer than 128 belong in fp32. sm_90
// lacks the instruction: ptxas converts both operands to fp16, issues two HMMA from zero and adds the result with four
// FADD, every time. gemm/mma_sync_operands.h does better there.

/// d += a * b
__device__ __forceinline__ void mma_m16n8k32_e4m3(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
