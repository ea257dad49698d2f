// SPDX-License-Identifier: MIT
// The warpgroup-wide FP8 tensor core product of Hopper: wgmma.m64nNk32, e4m3 by e4m3 into fp32, both operands in shared memory.
//
// All four warps of a warpgroup (128 threads, aligned) execute it together; it runs asynchronously. With w = warp % 4,
// g = lane / 4 and t = lane % 4 a thread holds
//   d[4j], d[4j+1]     = D[16w + g][8j + 2t, 8j + 2t + 1]
//   d[4j+2], d[4j+3]   = D[16w + g + 8][8j + 2t, 8j + 2t + 1]
// The adder keeps about 13 fraction bits, so sums longer than 128 belong in ordinary fp32.
//
// Order: wgmma_fence; products; wgmma_commit; wgmma_wait; wgmma_results(d). Accumulators must not be touched in between.
#pragma once

#include <cstdint>

/// The operand whose rows (64 of A, N of B) lie at `shared` in the 128-byte swizzle of TMA: 128 bytes per row, groups of
/// eight rows 1024 bytes apart and aligned. Adding 2 moves 32 bytes along K.
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t shared) {
    constexpr uint64_t kSwizzle128 = 1ull << 62;
    constexpr uint64_t kGroupPitch = (1024ull >> 4) << 32;
    constexpr uint64_t kUnused = 1ull << 16;   // the other pitch, which this layout has no use for
    return kSwizzle128 | kGroupPitch | kUnused | (shared >> 4);
}

/// Order register accesses before with products after.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }

/// Close the group of all products issued since the last commit.
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }

/// Wait until at most `kPending` groups are still in flight.
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

// Register lists: those of N extend those of N - 16 by eight.
#define WARPWAVE_EIGHT(i) \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
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

// A, B and ADD are the numbers of the operands after N / 2 registers.
#define WARPWAVE_WGMMA(N, A, B, ADD)                                                                        \
    template <>                                                                                             \
    struct Wgmma<N> {                                                                                       \
        /* d = a * b, plus what d was if `add` */                                                           \
        static __device__ __forceinline__ void product(float (&d)[N / 2], uint64_t a, uint64_t b, bool add) { \
            asm volatile("{ .reg .pred add;\nsetp.ne.b32 add, " ADD ", 0;\n"                                \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 "                        \
                         "{" WARPWAVE_NAMES_##N "}, " A ", " B ", add, 1, 1; }\n"                           \
                         : WARPWAVE_VALUES_##N                                                              \
                         : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                     \
        }                                                                                                   \
    };

WARPWAVE_WGMMA(16, "%8", "%9", "%10")
WARPWAVE_WGMMA(32, "%16", "%17", "%18")
WARPWAVE_WGMMA(48, "%24", "%25", "%26")
WARPWAVE_WGMMA(64, "%32", "%33", "%34")
WARPWAVE_WGMMA(80, "%40", "%41", "%42")
WARPWAVE_WGMMA(96, "%48", "%49", "%50")
WARPWAVE_WGMMA(112, "%56", "%57", "%58")
WARPWAVE_WGMMA(128, "%64", "%65", "%66")
WARPWAVE_WGMMA(144, "%72", "%73", "%74")
WARPWAVE_WGMMA(160, "%80", "%81", "%82")
WARPWAVE_WGMMA(176, "%88", "%89", "%90")
WARPWAVE_WGMMA(192, "%96", "%97", "%98")

#undef WARPWAVE_WGMMA
#undef WARPWAVE_EIGHT
#undef WARPWAVE_NAMES_16
#undef WARPWAVE_VALUES_16
#undef WARPWAVE_NAMES_32
#undef WARPWAVE_VALUES_32
#undef WARPWAVE_NAMES_48
#undef WARPWAVE_VALUES_48
#undef WARPWAVE_NAMES_64
#undef WARPWAVE_VALUES_64
#undef WARPWAVE_NAMES_80
#undef WARPWAVE_VALUES_80
#undef WARPWAVE_NAMES_96
#undef WARPWAVE_VALUES_96
#undef WARPWAVE_NAMES_112
#undef WARPWAVE_VALUES_112
#undef WARPWAVE_NAMES_128
#undef WARPWAVE_VALUES_128
#undef WARPWAVE_NAMES_144
#undef WARPWAVE_VALUES_144
#undef WARPWAVE_NAMES_160
#undef WARPWAVE_VALUES_160
#undef WARPWAVE_NAMES_176
#undef WARPWAVE_VALUES_176
#undef WARPWAVE_NAMES_192
#undef WARPWAVE_VALUES_192
