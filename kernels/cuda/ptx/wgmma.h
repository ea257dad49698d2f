// SPDX-License-Identifier: MIT
// Hopper's tensor core products, one instruction per function (wgmma, sm_90a): operand descriptors, order of accesses, the
// products of FP8 (m64nNk32) and of 16-bit elements (m64nNk16). All run for a whole warpgroup.
#pragma once

#include <cstdint>

#include "ptx/mma.h"

// Operand lists of the wgmma instructions: the accumulators of m64nN, N / 2 registers, as asm writes and binds them.
//
// WARPWAVE_NAMES_N is "%0, %1, ..."; WARPWAVE_VALUES_N binds them to `float (&d)[N / 2]`, read and written.

#define WARPWAVE_EIGHT(i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])

#define WARPWAVE_NAMES_8 "%0, %1, %2, %3"
#define WARPWAVE_VALUES_8 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
// The lists of N extend those of N - 16 by eight.
#define WARPWAVE_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WARPWAVE_VALUES_16 WARPWAVE_EIGHT(0)
#define WARPWAVE_NAMES_32 WARPWAVE_NAMES_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WARPWAVE_VALUES_32 WARPWAVE_VALUES_16, WARPWAVE_EIGHT(8)
#define WARPWAVE_NAMES_48 WARPWAVE_NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WARPWAVE_VALUES_48 WARPWAVE_VALUES_32, WARPWAVE_EIGHT(16)
#define WARPWAVE_NAMES_64 WARPWAVE_NAMES_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define WARPWAVE_VALUES_64 WARPWAVE_VALUES_48, WARPWAVE_EIGHT(24)
#define WARPWAVE_NAMES_80 WARPWAVE_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WARPWAVE_VALUES_80 WARPWAVE_VALUES_64, WARPWAVE_EIGHT(32)
#define WARPWAVE_NAMES_96 WARPWAVE_NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WARPWAVE_VALUES_96 WARPWAVE_VALUES_80, WARPWAVE_EIGHT(40)
#define WARPWAVE_NAMES_112 WARPWAVE_NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define WARPWAVE_VALUES_112 WARPWAVE_VALUES_96, WARPWAVE_EIGHT(48)
#define WARPWAVE_NAMES_128 WARPWAVE_NAMES_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WARPWAVE_VALUES_128 WARPWAVE_VALUES_112, WARPWAVE_EIGHT(56)
#define WARPWAVE_NAMES_144 WARPWAVE_NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define WARPWAVE_VALUES_144 WARPWAVE_VALUES_128, WARPWAVE_EIGHT(64)
#define WARPWAVE_NAMES_160 WARPWAVE_NAMES_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define WARPWAVE_VALUES_160 WARPWAVE_VALUES_144, WARPWAVE_EIGHT(72)
#define WARPWAVE_NAMES_176 WARPWAVE_NAMES_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define WARPWAVE_VALUES_176 WARPWAVE_VALUES_160, WARPWAVE_EIGHT(80)
#define WARPWAVE_NAMES_192 WARPWAVE_NAMES_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define WARPWAVE_VALUES_192 WARPWAVE_VALUES_176, WARPWAVE_EIGHT(88)
#define WARPWAVE_NAMES_208 WARPWAVE_NAMES_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define WARPWAVE_VALUES_208 WARPWAVE_VALUES_192, WARPWAVE_EIGHT(96)
#define WARPWAVE_NAMES_224 WARPWAVE_NAMES_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define WARPWAVE_VALUES_224 WARPWAVE_VALUES_208, WARPWAVE_EIGHT(104)
#define WARPWAVE_NAMES_240 WARPWAVE_NAMES_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define WARPWAVE_VALUES_240 WARPWAVE_VALUES_224, WARPWAVE_EIGHT(112)
#define WARPWAVE_NAMES_256 WARPWAVE_NAMES_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define WARPWAVE_VALUES_256 WARPWAVE_VALUES_240, WARPWAVE_EIGHT(120)

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

/// The same with rows of 32 bytes in the 32-byte swizzle: groups of eight rows are 256 bytes apart and aligned.
__device__ __forceinline__ uint64_t wgmma_operand_32(uint32_t shared) {
    constexpr uint64_t kSwizzle32 = 3ull << 62;
    constexpr uint64_t kGroupPitch = (256ull >> 4) << 32;
    constexpr uint64_t kUnused = 1ull << 16;
    return kSwizzle32 | kGroupPitch | kUnused | (shared >> 4);
}

/// The same without swizzle: core matrices of eight rows by 16 bytes, 128 bytes each, lie `along_k` bytes apart along K and
/// `along_rows` along the rows. Of a transposed operand, too: its core matrices are eight k by 16 bytes of rows. (In the
/// swizzled layouts of a transposed operand the two offsets change places: PTX ISA, "Strides" of wgmma.)
__device__ __forceinline__ uint64_t wgmma_operand_plain(uint32_t shared, uint32_t along_k, uint32_t along_rows) {
    return static_cast<uint64_t>(along_rows >> 4) << 32 | static_cast<uint64_t>(along_k >> 4) << 16 | (shared >> 4);
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

// NAME<N> multiplies operands of KIND. The numbers are those of the operands after N / 2 accumulators.
#define WARPWAVE_WGMMA(NAME, KIND, N, O0, O1, O2, O3, O4, O5)                                             \
    template <>                                                                                           \
    struct NAME<N> {                                                                                      \
        /* d = a * b, plus what d was if `add` */                                                         \
        static __device__ __forceinline__ void product(float (&d)[N / 2], uint64_t a, uint64_t b, bool add) {\
            asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %" #O2 ", 0;\n"                             \
                         "wgmma.mma_async.sync.aligned.m64n" #N KIND                                      \
                         "{" WARPWAVE_NAMES_##N "}, %" #O0 ", %" #O1 ", add, 1, 1; }\n"                   \
                         : WARPWAVE_VALUES_##N                                                            \
                         : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                   \
        }                                                                                                 \
        /* the same with a in registers */                                                                \
        static __device__ __forceinline__ void product(                                                   \
            float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, bool add) {                            \
            asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, %" #O5 ", 0;\n"                             \
                         "wgmma.mma_async.sync.aligned.m64n" #N KIND                                      \
                         "{" WARPWAVE_NAMES_##N "}, {%" #O0 ", %" #O1 ", %" #O2 ", %" #O3 "}, %" #O4      \
                         ", add, 1, 1; }\n"                                                               \
                         : WARPWAVE_VALUES_##N                                                            \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(add)));\
        }                                                                                                 \
    };

WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 8, 4, 5, 6, 7, 8, 9)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 16, 8, 9, 10, 11, 12, 13)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 32, 16, 17, 18, 19, 20, 21)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 48, 24, 25, 26, 27, 28, 29)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 64, 32, 33, 34, 35, 36, 37)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 80, 40, 41, 42, 43, 44, 45)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 96, 48, 49, 50, 51, 52, 53)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 112, 56, 57, 58, 59, 60, 61)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 128, 64, 65, 66, 67, 68, 69)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 144, 72, 73, 74, 75, 76, 77)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 160, 80, 81, 82, 83, 84, 85)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 176, 88, 89, 90, 91, 92, 93)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 192, 96, 97, 98, 99, 100, 101)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 208, 104, 105, 106, 107, 108, 109)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 224, 112, 113, 114, 115, 116, 117)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 240, 120, 121, 122, 123, 124, 125)
WARPWAVE_WGMMA(Wgmma, "k32.f32.e4m3.e4m3 ", 256, 128, 129, 130, 131, 132, 133)

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

/// Products of kN columns, 8 or a multiple of 16 up to 256. Element is Bf16 or Fp16.
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

WARPWAVE_WGMMA_16BIT_BOTH(8, 4, 5, 6, 7, 8, 9, 10)
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

/// The product of TF32 operands, m64nNk8: fp32 of which the tensor cores read 10 fraction bits. Both are K-major (there is no
/// other form); fragments and accumulators as above, a register being one element.
template <int kN>
struct WgmmaTf32;

WARPWAVE_WGMMA(WgmmaTf32, "k8.f32.tf32.tf32 ", 8, 4, 5, 6, 7, 8, 9)
WARPWAVE_WGMMA(WgmmaTf32, "k8.f32.tf32.tf32 ", 16, 8, 9, 10, 11, 12, 13)
WARPWAVE_WGMMA(WgmmaTf32, "k8.f32.tf32.tf32 ", 64, 32, 33, 34, 35, 36, 37)
WARPWAVE_WGMMA(WgmmaTf32, "k8.f32.tf32.tf32 ", 256, 128, 129, 130, 131, 132, 133)

#undef WARPWAVE_WGMMA
