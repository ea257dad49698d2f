// SPDX-License-Identifier: MIT
// One tile of 64 x n by wgmma, a warpgroup per block. A variant's file names a form: how operands come to shared memory and lie
// there, and how many products follow each other.
//
// Threads copy 16 bytes at a time, so that the layout stands in one line (`place`), and no TMA hides it; tma_tile.h has the other
// way. The columns of a tile are cut into the widest of 8, 16, 64 and 256 that divides them, a block each.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernel.h"
#include "launch.h"
#include "layout.h"
#include "ptx/ldst.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

/// What a form says if it says nothing else: operands in the swizzle of that name, 0 for none.
template <int kOfRows>
struct Swizzled {
    static constexpr int kSwizzle = kOfRows;
    static constexpr int kStep = Layout<kOfRows>::kRow;  // bytes of K between two waits
    static constexpr bool kRegisters = false;            // A comes from memory to registers
    static constexpr bool kTransposed = false;           // B lies transposed: N is contiguous
    static constexpr int kBlocks = 1;                    // of a cluster, which share A
};

/// The product of a type. FP8 sums stay in the tensor cores' short adder for 128 products at most.
template <int kN, int kType, bool kTransposed>
struct Product : Wgmma16<kN, Fp16, kTransposed> {};
template <int kN, bool kTransposed>
struct Product<kN, 1, kTransposed> : Wgmma16<kN, Bf16, kTransposed> {};
template <int kN>
struct Product<kN, 2, false> : WgmmaTf32<kN> {};
template <int kN>
struct Product<kN, 3, false> : Wgmma<kN> {};

template <class Form, int kN>
struct Operands {
    using Left = Panels<Form::kSwizzle, Form::kStep, 64>;
    using Right = std::conditional_t<
        Form::kTransposed, TransposedPanels<Form::kSwizzle, Form::kStep, kN>, Panels<Form::kSwizzle, Form::kStep, kN>>;
    static constexpr int kBytes = Left::kBytes + Right::kBytes;
};

struct Tiles {
    const uint8_t *a, *b;
    float* c;
    int bytes;  // of a row
    int n;      // columns of a tile; a block takes kN of them

    __device__ __forceinline__ int slices(int first, int step) const {
        return (bytes - first < step ? bytes - first : step) / kSlice;
    }
};

/// The sums of a thread. Those of FP8 are added up in fp32 after 128 bytes of K; longer steps have a set of sums for each 128.
template <class Form, int kN, int kType>
struct Sums {
    static constexpr int kSlices = Form::kStep / kSlice,
                         kSets = kType == 3 && Form::kStep > 128 ? Form::kStep / 128 : 1;
    static constexpr int kOfSet = kSlices / kSets;
    float sums[kSets][kN / 2], kept[kType == 3 ? kN / 2 : 1] = {};
    bool begun = false;

    /// Add a step: `left(s)` is A of product s, B's panels begin at `b`.
    template <class Left>
    __device__ __forceinline__ void multiply(const Left& left, uint32_t b, int slices) {
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < kSlices; ++s) {
            if (s >= slices) break;
            Product<kN, kType, Form::kTransposed>::product(
                sums[s / kOfSet], left(s), Operands<Form, kN>::Right::operand(b, s), begun || s % kOfSet != 0);
        }
        begun = kType != 3;
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int set = 0; set < kSets; ++set) {
            wgmma_results(sums[set]);
            if constexpr (kType == 3) {
                static_assert(kOfSet <= 4, "128 products of a sum at most stay in the short adder");
#pragma unroll
                for (int i = 0; i < kN / 2; ++i) kept[i] += set * kOfSet < slices ? sums[set][i] : 0.0f;
            }
        }
    }

    /// Write them to rows of `n` floats.
    __device__ __forceinline__ void store(float* c, int n) {
        const int warp = static_cast<int>(threadIdx.x) / 32, group = static_cast<int>(threadIdx.x) % 32 / 4;
        const int quad = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
        for (int j = 0; j < kN / 8; ++j) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = warp * 16 + group + i / 2 * 8, column = 8 * j + 2 * quad + i % 2;
                c[row * n + column] = kType == 3 ? kept[kType == 3 ? 4 * j + i : 0] : sums[0][4 * j + i];
            }
        }
    }
};

/// A step's pieces of 16 bytes of `count` rows to where the panels want them.
template <class Place>
__device__ __forceinline__ void each_piece(const uint8_t* from, int count, int step, int first, int bytes, Place put) {
    const int pieces = step / 16;
    for (int i = static_cast<int>(threadIdx.x); i < count * pieces; i += 128) {
        const int row = i / pieces, byte = i % pieces * 16;
        if (first + byte >= bytes) continue;
        put(row, byte, from + static_cast<size_t>(row) * static_cast<size_t>(bytes) + first + byte);
    }
}

template <class Form, int kN, int kType>
__global__ void __launch_bounds__(128) tile_kernel(Tiles tiles) {
    using Left = typename Operands<Form, kN>::Left;
    using Right = typename Operands<Form, kN>::Right;
    uint8_t* const a_shared = swizzled_shared();
    uint8_t* const b_shared = a_shared + Left::kBytes;
    const int warp = static_cast<int>(threadIdx.x) / 32, group = static_cast<int>(threadIdx.x) % 32 / 4;
    const int quad = static_cast<int>(threadIdx.x) % 4, parts = tiles.n / kN;
    const size_t tile = blockIdx.x / static_cast<unsigned>(parts), pitch = static_cast<size_t>(tiles.bytes);
    const size_t edge = blockIdx.x % static_cast<unsigned>(parts) * kN;
    const uint8_t* const a = tiles.a + tile * 64 * pitch;
    const uint8_t* const b = tiles.b + (tile * static_cast<size_t>(tiles.n) + edge) * pitch;
    Sums<Form, kN, kType> sums;
    for (int first = 0; first < tiles.bytes; first += Form::kStep) {
        const auto put = [](uint8_t* to, const uint8_t* from) {
            *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
        };
        if constexpr (!Form::kRegisters) {
            each_piece(a, 64, Form::kStep, first, tiles.bytes, [&](int row, int byte, const uint8_t* from) {
                put(a_shared + Left::place(row, byte), from);
            });
        }
        each_piece(b, kN, Form::kStep, first, tiles.bytes, [&](int row, int byte, const uint8_t* from) {
            if constexpr (Form::kTransposed) {
                for (int i = 0; i < 8; ++i) {
                    *reinterpret_cast<uint16_t*>(b_shared + Right::place(row, byte / 2 + i)) =
                        reinterpret_cast<const uint16_t*>(from)[i];
                }
            } else {
                put(b_shared + Right::place(row, byte), from);
            }
        });
        fence_async_shared();  // what threads wrote, the tensor cores read
        __syncthreads();
        const int slices = tiles.slices(first, Form::kStep);
        if constexpr (Form::kRegisters) {
            uint32_t registers[Form::kStep / kSlice][4];
#pragma unroll
            for (int s = 0; s < Form::kStep / kSlice; ++s) {
                for (int i = 0; s < slices && i < 4; ++i) {
                    const size_t row = static_cast<size_t>(warp * 16 + group + i % 2 * 8);
                    const int byte = first + s * kSlice + i / 2 * 16 + quad * 4;
                    registers[s][i] = *reinterpret_cast<const uint32_t*>(a + row * pitch + byte);
                }
            }
            sums.multiply(
                [&](int s) -> const uint32_t (&)[4] { return registers[s]; }, shared_address(b_shared), slices);
        } else {
            sums.multiply(
                [&](int s) { return Left::operand(shared_address(a_shared), s); }, shared_address(b_shared), slices);
        }
        __syncthreads();
    }
    float* const c = tiles.c + tile * 64 * static_cast<size_t>(tiles.n) + edge;
    sums.store(c, tiles.n);
}

/// Launches tile_kernel.
struct ByThreads {
    template <class Form, int kN, int kType>
    static int launch(const Tiles& tiles, int repeat, void* queue) {
        const auto kernel = tile_kernel<Form, kN, kType>;
        constexpr int kBytes = Operands<Form, kN>::kBytes;
        const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
        if (status != cudaSuccess) return status;
        LAUNCH(kernel, dim3(static_cast<unsigned>(repeat * (tiles.n / kN))), dim3(128), kBytes, queue)(tiles);
        return LAUNCH_STATUS();
    }
};

template <class Launcher, class Form, int kN>
int launch_type(const Tiles& tiles, int type, int repeat, void* queue) {
    // Of FP8, two and more sets of sums do not fit into the registers of 128 threads at n = 256.
    constexpr int kShortN = kN == 256 ? 128 : kN;
    switch (type) {
        case 0: return Launcher::template launch<Form, kN, 0>(tiles, repeat, queue);
        case 1: return Launcher::template launch<Form, kN, 1>(tiles, repeat, queue);
        case 2:
            if constexpr (!Form::kTransposed) return Launcher::template launch<Form, kN, 2>(tiles, repeat, queue);
            break;
        case 3:
            if constexpr (!Form::kTransposed) return Launcher::template launch<Form, kShortN, 3>(tiles, repeat, queue);
    }
    return kUnsupportedShape;  // only operands of 16 bits may be transposed
}

template <class Launcher, class Form>
int multiply_tiles(const void* a, const void* b, float* c, int n, int k, int type, int repeat, void* queue) {
    const int bytes = k * (type == 2 ? 4 : type == 3 ? 1 : 2);
    if (n <= 0 || n > 256 || k <= 0 || bytes % kSlice != 0 || repeat <= 0) return kUnsupportedShape;
    const Tiles tiles = {static_cast<const uint8_t*>(a), static_cast<const uint8_t*>(b), c, bytes, n};
    if (n % (256 * Form::kBlocks) == 0) return launch_type<Launcher, Form, 256>(tiles, type, repeat, queue);
    if (n % (64 * Form::kBlocks) == 0) return launch_type<Launcher, Form, 64>(tiles, type, repeat, queue);
    if (n % (16 * Form::kBlocks) == 0) return launch_type<Launcher, Form, 16>(tiles, type, repeat, queue);
    if (n % (8 * Form::kBlocks) == 0) return launch_type<Launcher, Form, 8>(tiles, type, repeat, queue);
    return kUnsupportedShape;
}

/// Defines wgmma_tile() in the form of that name.
#define WGMMA_TILE(launcher, form)                                                                                \
    extern "C" int wgmma_tile(                                                                                    \
        const void* a, const void* b, float* c, int n, int k, int type, int repeat, void*, size_t, void* queue) { \
        return multiply_tiles<launcher, form>(a, b, c, n, k, type, repeat, queue);                                \
    }
