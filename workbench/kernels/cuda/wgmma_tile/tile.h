// SPDX-License-Identifier: MIT
// One tile of 64 x n by wgmma, a warpgroup per block: how the operands lie in shared memory is what the variants change.
//
// Threads copy 16 bytes at a time, so that the layout stands in one line (`place`), and no TMA hides it. Rows of an operand are
// kRow bytes of K at a time; a product takes 32 of them, whatever the type.
#pragma once

#include <cstdint>

#include "kernel.h"
#include "launch.h"
#include "ptx/ldst.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

constexpr int kSlice = 32;  // bytes of K of one product

/// Operands of kRow bytes in the swizzle of that name; 0 for none, whose rows are one product long.
template <int kSwizzle>
struct Layout {
    static constexpr int kRow = kSwizzle == 0 ? kSlice : kSwizzle;

    /// Where 16 bytes at byte `byte` of K of a row lie.
    static __device__ __forceinline__ uint32_t place(int row, int byte) {
        // Core matrices: eight rows of 16 bytes; here the two of a product are neighbours, and the next eight rows follow.
        if (kSwizzle == 0) return static_cast<uint32_t>(row / 8 * 256 + byte / 16 * 128 + row % 8 * 16);
        // Rows follow each other; the 16-byte pieces of a row change places by the number of 128-byte lines before it.
        const uint32_t address = static_cast<uint32_t>(row * kRow + byte);
        constexpr uint32_t kMask = kSwizzle / 16 - 1;
        return address ^ (address >> 7 & kMask) << 4;
    }
    static __device__ __forceinline__ uint64_t operand(uint32_t shared) {
        if (kSwizzle == 0) return wgmma_operand_plain(shared, 128, 256);
        if (kSwizzle == 32) return wgmma_operand_32(shared);
        if (kSwizzle == 64) return wgmma_operand_64(shared);
        return wgmma_operand(shared);
    }
};

/// The product of a type. FP8 sums stay in the tensor cores' short adder for 128 products at most.
template <int kN, int kType>
struct Product : Wgmma16<kN, Fp16> {};
template <int kN>
struct Product<kN, 1> : Wgmma16<kN, Bf16> {};
template <int kN>
struct Product<kN, 2> : WgmmaTf32<kN> {};
template <int kN>
struct Product<kN, 3> : Wgmma<kN> {};

/// kRows: bytes of K between two waits, in rows of the layout. kRegisters: A comes from memory to registers.
template <int kSwizzle, int kRows, bool kRegisters>
struct Variant {
    using Rows = Layout<kSwizzle>;
    static constexpr int kStep = Rows::kRow * kRows;
    static constexpr int shared_bytes(int n) { return (64 + n) * kStep; }
};

struct Tiles {
    const uint8_t *a, *b;
    float* c;
    int bytes;  // of a row
    int n;      // columns of a tile; a block takes kN of them
};

/// `count` rows of kStep bytes (fewer at the end of K) to shared memory, one layout after the other.
template <class Form>
__device__ __forceinline__ void copy_rows(uint8_t* to, const uint8_t* from, int count, int first, int bytes) {
    using Rows = typename Form::Rows;
    constexpr int kPieces = Form::kStep / 16;
    for (int i = static_cast<int>(threadIdx.x); i < count * kPieces; i += 128) {
        const int row = i / kPieces, byte = i % kPieces * 16;
        if (first + byte >= bytes) continue;
        const uint32_t place =
            static_cast<uint32_t>(byte / Rows::kRow * count * Rows::kRow) + Rows::place(row, byte % Rows::kRow);
        *reinterpret_cast<uint4*>(to + place) = *reinterpret_cast<const uint4*>(
            from + static_cast<size_t>(row) * static_cast<size_t>(bytes) + first + byte);
    }
}

template <class Form, bool kRegisters, int kN, int kType>
__global__ void __launch_bounds__(128) tile_kernel(Tiles tiles) {
    using Rows = typename Form::Rows;
    uint8_t* const a_shared = swizzled_shared();
    uint8_t* const b_shared = a_shared + 64 * Form::kStep;
    const int warp = static_cast<int>(threadIdx.x) / 32, group = static_cast<int>(threadIdx.x) % 32 / 4;
    const int quad = static_cast<int>(threadIdx.x) % 4;
    const size_t tile = blockIdx.x, pitch = static_cast<size_t>(tiles.bytes);
    const uint8_t* const a = tiles.a + tile * 64 * pitch;
    const uint8_t* const b = tiles.b + (tile * static_cast<size_t>(tiles.n) + blockIdx.y * kN) * pitch;
    float sums[kN / 2], kept[kType == 3 ? kN / 2 : 1] = {};
    bool begun = false;
    for (int first = 0; first < tiles.bytes; first += Form::kStep) {
        if (!kRegisters) copy_rows<Form>(a_shared, a, 64, first, tiles.bytes);
        copy_rows<Form>(b_shared, b, kN, first, tiles.bytes);
        fence_async_shared();  // what threads wrote, the tensor cores read
        __syncthreads();
        const int left = tiles.bytes - first, slices = (left < Form::kStep ? left : Form::kStep) / kSlice;
        uint32_t registers[Form::kStep / kSlice][4];
        if (kRegisters) {
#pragma unroll
            for (int s = 0; s < Form::kStep / kSlice; ++s) {
                for (int i = 0; s < slices && i < 4; ++i) {
                    const size_t row = static_cast<size_t>(warp * 16 + group + i % 2 * 8);
                    const int byte = first + s * kSlice + i / 2 * 16 + quad * 4;
                    registers[s][i] = *reinterpret_cast<const uint32_t*>(a + row * pitch + byte);
                }
            }
        }
        wgmma_fence();
#pragma unroll
        for (int s = 0; s < Form::kStep / kSlice; ++s) {
            if (s >= slices) break;
            constexpr int kPer = Rows::kRow / kSlice;
            const int along = s % kPer * kSlice;
            const uint64_t right =
                Rows::operand(shared_address(b_shared) + static_cast<uint32_t>(s / kPer * kN * Rows::kRow + along));
            if constexpr (kRegisters) {
                Product<kN, kType>::product(sums, registers[s], right, begun);
            } else {
                const uint64_t left_operand =
                    Rows::operand(shared_address(a_shared) + static_cast<uint32_t>(s / kPer * 64 * Rows::kRow + along));
                Product<kN, kType>::product(sums, left_operand, right, begun);
            }
            begun = true;
        }
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_results(sums);
        if constexpr (kType == 3) {
            static_assert(Form::kStep <= 128, "128 products of a sum at most stay in the short adder");
#pragma unroll
            for (int i = 0; i < kN / 2; ++i) kept[i] += sums[i];
            begun = false;
        }
        __syncthreads();
    }
    float* const c = tiles.c + tile * 64 * static_cast<size_t>(tiles.n) + blockIdx.y * kN;
#pragma unroll
    for (int j = 0; j < kN / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = warp * 16 + group + i / 2 * 8, column = 8 * j + 2 * quad + i % 2;
            c[row * tiles.n + column] = kType == 3 ? kept[kType == 3 ? 4 * j + i : 0] : sums[4 * j + i];
        }
    }
}

template <class Form, bool kRegisters, int kN, int kType>
int launch_tiles(const Tiles& tiles, int repeat, void* queue) {
    const auto kernel = tile_kernel<Form, kRegisters, kN, kType>;
    constexpr int kBytes = Form::shared_bytes(kN);
    const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    if (status != cudaSuccess) return status;
    LAUNCH(kernel, dim3(static_cast<unsigned>(repeat), static_cast<unsigned>(tiles.n / kN)), dim3(128), kBytes, queue)(
        tiles);
    return LAUNCH_STATUS();
}

template <class Form, bool kRegisters, int kN>
int launch_type(const Tiles& tiles, int type, int repeat, void* queue) {
    switch (type) {
        case 0: return launch_tiles<Form, kRegisters, kN, 0>(tiles, repeat, queue);
        case 1: return launch_tiles<Form, kRegisters, kN, 1>(tiles, repeat, queue);
        case 2: return launch_tiles<Form, kRegisters, kN, 2>(tiles, repeat, queue);
        case 3:
            // Two sets of sums do not fit into the registers of 128 threads at n = 256: two blocks share such a tile.
            if constexpr (Form::kStep <= 128)
                return launch_tiles<Form, kRegisters, kN == 256 ? 128 : kN, 3>(tiles, repeat, queue);
    }
    return kUnsupportedShape;
}

/// wgmma_tile() with operands in `swizzle`, `rows` of it between two waits.
#define WGMMA_TILE(swizzle, rows, registers)                                                                      \
    extern "C" int wgmma_tile(                                                                                    \
        const void* a, const void* b, float* c, int n, int k, int type, int repeat, void*, size_t, void* queue) { \
        using Form = Variant<swizzle, rows, registers>;                                                           \
        const int bytes = k * (type == 2 ? 4 : type == 3 ? 1 : 2);                                                \
        if (k <= 0 || bytes % kSlice != 0 || repeat <= 0) return kUnsupportedShape;                               \
        const Tiles tiles = {static_cast<const uint8_t*>(a), static_cast<const uint8_t*>(b), c, bytes, n};        \
        switch (n) {                                                                                              \
            case 16: return launch_type<Form, registers, 16>(tiles, type, repeat, queue);                         \
            case 64: return launch_type<Form, registers, 64>(tiles, type, repeat, queue);                         \
            case 256: return launch_type<Form, registers, 256>(tiles, type, repeat, queue);                       \
            default: return kUnsupportedShape;                                                                    \
        }                                                                                                         \
    }
