// SPDX-License-Identifier: MIT
// The warpgroup-wide FP8 tensor core product of Hopper: wgmma.m64nNk32, e4m3 by e4m3 into fp32, B in shared memory.
//
// All four warps of a warpgroup (128 threads, aligned) execute it together; it runs asynchronously. With w = warp % 4,
// g = lane / 4 and t = lane % 4 a thread holds
//   d[4j], d[4j+1]     = D[16w + g][8j + 2t, 8j + 2t + 1]
//   d[4j+2], d[4j+3]   = D[16w + g + 8][8j + 2t, 8j + 2t + 1]
// The adder keeps about 13 fraction bits, so sums longer than 128 belong in ordinary fp32.
//
// A lies in shared memory, too, or in registers, which then belong to the product until it has been waited for:
//   a[0] = A[16w + g][4t .. 4t + 3]        a[1] = A[16w + g + 8][4t .. 4t + 3]
//   a[2] = A[16w + g][4t + 16 .. 4t + 19]  a[3] = A[16w + g + 8][4t + 16 .. 4t + 19]
//
// Order: wgmma_fence; products; wgmma_commit; wgmma_wait; wgmma_results(d). Accumulators must not be touched in between.
#pragma once

#include <cstdint>

#include "ptx/wgmma_registers.h"

/// The operand whose rows (64 of A, N of B) lie at `shared` in the 128-byte swizzle of TMA: 128 bytes per row, groups of
/// eight rows 1024 bytes apart and aligned. Adding 2 moves 32 bytes along K.
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t shared) {
    constexpr uint64_t kSwizzle128 = 1ull << 62;
    constexpr uint64_t kGroupPitch = (1024ull >> 4) << 32;
    constexpr uint64_t kUnused = 1ull << 16;   // the other pitch, which this layout has no use for
    return kSwizzle128 | kGroupPitch | kUnused | (shared >> 4);
}

/// The same with rows of 64 bytes in the 64-byte swizzle: groups of eight rows are 512 bytes apart and aligned.
__device__ __forceinline__ uint64_t wgmma_operand_64(uint32_t shared) {
    constexpr uint64_t kSwizzle64 = 2ull << 62;
    constexpr uint64_t kGroupPitch = (512ull >> 4) << 32;
    constexpr uint64_t kUnused = 1ull << 16;
    return kSwizzle64 | kGroupPitch | kUnused | (shared >> 4);
}

/// An operand from its low word, which is all that addresses change.
__device__ __forceinline__ uint64_t wgmma_operand_of(uint32_t low) {
    return (wgmma_operand(0) & ~0xffffffffull) | low;
}

/// Order register accesses before with products after.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }

/// Close the group of all products issued since the last commit.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }

/// Wait until at most `kPending` groups are still in flight. Like all of these for the whole warpgroup: PTX leaves undefined
/// what happens where only some of its warps wait, even if only these go on to touch their accumulators.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

/// No instruction: keeps the compiler from reading accumulators before the wait in front of this.
template <int kCount>
__device__ __forceinline__ void wgmma_results(float (&d)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <int kN>
struct Wgmma;

// The numbers are those of the operands after N / 2 accumulators.
#define WARPWAVE_WGMMA(N, O0, O1, O2, O3, O4, O5)                                                           \
    template <>                                                                                             \
    struct Wgmma<N> {                                                                                       \
        /* d = a * b, plus what d was if `add` */                                                           \
        static __device__ __forceinline__ void product(float (&d)[N / 2], uint64_t a, uint64_t b, bool add) { \
            asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %" #O2 ", 0;\n"                               \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 "                        \
                         "{" WARPWAVE_NAMES_##N "}, %" #O0 ", %" #O1 ", add, 1, 1; }\n"                     \
                         : WARPWAVE_VALUES_##N                                                              \
                         : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                     \
        }                                                                                                   \
        /* the same with a in registers */                                                                  \
        static __device__ __forceinline__ void product(                                                     \
            float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add) {                              \
            asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %" #O5 ", 0;\n"                               \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 "                        \
                         "{" WARPWAVE_NAMES_##N "}, {%" #O0 ", %" #O1 ", %" #O2 ", %" #O3 "}, %" #O4        \
                         ", add, 1, 1; }\n"                                                                 \
                         : WARPWAVE_VALUES_##N                                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add))); \
        }                                                                                                   \
    };

WARPWAVE_WGMMA(16, 8, 9, 10, 11, 12, 13)
WARPWAVE_WGMMA(32, 16, 17, 18, 19, 20, 21)
WARPWAVE_WGMMA(48, 24, 25, 26, 27, 28, 29)
WARPWAVE_WGMMA(64, 32, 33, 34, 35, 36, 37)
WARPWAVE_WGMMA(80, 40, 41, 42, 43, 44, 45)
WARPWAVE_WGMMA(96, 48, 49, 50, 51, 52, 53)
WARPWAVE_WGMMA(112, 56, 57, 58, 59, 60, 61)
WARPWAVE_WGMMA(128, 64, 65, 66, 67, 68, 69)
WARPWAVE_WGMMA(144, 72, 73, 74, 75, 76, 77)
WARPWAVE_WGMMA(160, 80, 81, 82, 83, 84, 85)
WARPWAVE_WGMMA(176, 88, 89, 90, 91, 92, 93)
WARPWAVE_WGMMA(192, 96, 97, 98, 99, 100, 101)
WARPWAVE_WGMMA(208, 104, 105, 106, 107, 108, 109)
WARPWAVE_WGMMA(224, 112, 113, 114, 115, 116, 117)
WARPWAVE_WGMMA(240, 120, 121, 122, 123, 124, 125)
WARPWAVE_WGMMA(256, 128, 129, 130, 131, 132, 133)

#undef WARPWAVE_WGMMA
