// SPDX-License-Identifier: MIT
// The warpgroup-wide 16-bit tensor core product of Hopper: wgmma.m64nNk16, bf16 or fp16 by the same into fp32.
//
// D[64][N] += A[64][16] B[16][N]. Accumulators, order and what must not be touched meanwhile are as in ptx/wgmma.h, with
// w = warp % 4, g = lane / 4 and t = lane % 4. B lies in shared memory, A there or in registers, then as (lower element in
// the low half of a register)
//   a[0] = A[16w + g][2t, 2t + 1]       a[1] = A[16w + g + 8][2t, 2t + 1]
//   a[2] = A[16w + g][2t + 8, 2t + 9]   a[3] = A[16w + g + 8][2t + 8, 2t + 9]
// so that d[8i] .. d[8i + 7] of one product, rounded and packed in pairs, are the A operand of another over its columns
// 16i .. 16i + 15. Registers of A belong to the product until it has been waited for, as accumulators do.
//
// A in shared memory is K-major: wgmma_operand of ptx/wgmma.h, rows of 64 elements; adding 2 moves 16 elements along K. That
// of Wgmma16OuterA is M-major, one box of 64 columns: wgmma_operand_transposed, whose pitch between boxes is not used then.
// B is K-major as well (a row is one of the N columns), or, with kBTransposed, N-major: wgmma_operand_transposed.
#pragma once

#include <cstdint>

#include "ptx/mma_16bit.h"
#include "ptx/wgmma.h"

/// The B operand whose K lies outermost, as TMA's 128-byte swizzle leaves boxes of 64 columns: at `shared` 64 of the N
/// columns of k = 0 in 128 bytes, then those of k = 1, eight of which make a swizzle pattern of 1024 bytes, aligned; the
/// next 64 columns lie `box_pitch` bytes further on. Adding 128 (2048 bytes) moves 16 rows along K.
///
/// `shared` has 18 bits. In a cluster a block's own addresses may carry its rank above them, which would end up in the pitch:
/// callers there mask it.
__device__ __forceinline__ uint64_t wgmma_operand_transposed(uint32_t shared, uint32_t box_pitch) {
    constexpr uint64_t kSwizzle128 = 1ull << 62;
    constexpr uint64_t kGroupPitch = (1024ull >> 4) << 32;   // the stride offset: between groups of eight k
    return kSwizzle128 | kGroupPitch | static_cast<uint64_t>(box_pitch >> 4) << 16 | (shared >> 4);   // and leading offset
}

/// Products of kN columns, a multiple of 16 up to 256. Element is Bf16 or Fp16.
template <int kN, class Element, bool kBTransposed = false>
struct Wgmma16;

// The numbers are those of the operands after N / 2 accumulators.
#define WARPWAVE_WGMMA_16BIT(N, ELEMENT, TYPE, O0, O1, O2, O3, O4, O5, O6)                                    \
    template <bool kBTransposed>                                                                              \
    struct Wgmma16<N, ELEMENT, kBTransposed> {                                                                \
        /* d = a * b, plus what d was if `add`; both in shared memory */                                      \
        static __device__ __forceinline__ void product(float (&d)[N / 2], uint64_t a, uint64_t b, bool add) { \
            asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %" #O2 ", 0;\n"                                 \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " "                  \
                         "{" WARPWAVE_NAMES_##N "}, %" #O0 ", %" #O1 ", add, 1, 1, 0, %" #O3 "; }\n"          \
                         : WARPWAVE_VALUES_##N                                                                \
                         : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(kBTransposed ? 1 : 0));            \
        }                                                                                                     \
        /* the same with a in registers */                                                                    \
        static __device__ __forceinline__ void product(                                                       \
            float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add) {                                \
            asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %" #O5 ", 0;\n"                                 \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " "                  \
                         "{" WARPWAVE_NAMES_##N "}, {%" #O0 ", %" #O1 ", %" #O2 ", %" #O3 "}, %" #O4          \
                         ", add, 1, 1, %" #O6 "; }\n"                                                         \
                         : WARPWAVE_VALUES_##N                                                                \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)),    \
                           "n"(kBTransposed ? 1 : 0));                                                        \
        }                                                                                                     \
    };
#define WARPWAVE_WGMMA_16BIT_BOTH(N, ...)                    \
    WARPWAVE_WGMMA_16BIT(N, Bf16, "bf16", __VA_ARGS__)       \
    WARPWAVE_WGMMA_16BIT(N, Fp16, "f16", __VA_ARGS__)

WARPWAVE_WGMMA_16BIT_BOTH(16, 8, 9, 10, 11, 12, 13, 14)
WARPWAVE_WGMMA_16BIT_BOTH(32, 16, 17, 18, 19, 20, 21, 22)
WARPWAVE_WGMMA_16BIT_BOTH(48, 24, 25, 26, 27, 28, 29, 30)
WARPWAVE_WGMMA_16BIT_BOTH(64, 32, 33, 34, 35, 36, 37, 38)
WARPWAVE_WGMMA_16BIT_BOTH(80, 40, 41, 42, 43, 44, 45, 46)
WARPWAVE_WGMMA_16BIT_BOTH(96, 48, 49, 50, 51, 52, 53, 54)
WARPWAVE_WGMMA_16BIT_BOTH(112, 56, 57, 58, 59, 60, 61, 62)
WARPWAVE_WGMMA_16BIT_BOTH(128, 64, 65, 66, 67, 68, 69, 70)
WARPWAVE_WGMMA_16BIT_BOTH(144, 72, 73, 74, 75, 76, 77, 78)
WARPWAVE_WGMMA_16BIT_BOTH(160, 80, 81, 82, 83, 84, 85, 86)
WARPWAVE_WGMMA_16BIT_BOTH(176, 88, 89, 90, 91, 92, 93, 94)
WARPWAVE_WGMMA_16BIT_BOTH(192, 96, 97, 98, 99, 100, 101, 102)
WARPWAVE_WGMMA_16BIT_BOTH(208, 104, 105, 106, 107, 108, 109, 110)
WARPWAVE_WGMMA_16BIT_BOTH(224, 112, 113, 114, 115, 116, 117, 118)
WARPWAVE_WGMMA_16BIT_BOTH(240, 120, 121, 122, 123, 124, 125, 126)
WARPWAVE_WGMMA_16BIT_BOTH(256, 128, 129, 130, 131, 132, 133, 134)

#undef WARPWAVE_WGMMA_16BIT_BOTH
#undef WARPWAVE_WGMMA_16BIT

/// Products whose A lies in shared memory with K outermost, B K-major.
template <int kN, class Element>
struct Wgmma16OuterA;

#define WARPWAVE_WGMMA_16BIT_OUTER(N, ELEMENT, TYPE, O0, O1, O2)                                              \
    template <>                                                                                               \
    struct Wgmma16OuterA<N, ELEMENT> {                                                                        \
        static __device__ __forceinline__ void product(float (&d)[N / 2], uint64_t a, uint64_t b, bool add) { \
            asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %" #O2 ", 0;\n"                                 \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " "                  \
                         "{" WARPWAVE_NAMES_##N "}, %" #O0 ", %" #O1 ", add, 1, 1, 1, 0; }\n"                 \
                         : WARPWAVE_VALUES_##N                                                                \
                         : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                       \
        }                                                                                                     \
    };

WARPWAVE_WGMMA_16BIT_OUTER(16, Bf16, "bf16", 8, 9, 10)
WARPWAVE_WGMMA_16BIT_OUTER(16, Fp16, "f16", 8, 9, 10)

#undef WARPWAVE_WGMMA_16BIT_OUTER
