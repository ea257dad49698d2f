// SPDX-License-Identifier: MIT
// One tile of 64 x n by MFMA: operands come from memory to registers in the layout of the instruction, 8 bytes a lane.
#pragma once

#include "kernel.h"
#include "launch.h"

#include "isa/mfma.h"

typedef float f32x16 __attribute__((vector_size(64), may_alias));

// Operands of a 32 x 32 tile, with r = lane % 32 and g = lane / 32: a and b as for 16 x 16, with contraction indices
// g * W + i; c: element i is row 8 * (i / 4) + 4 * g + i % 4, column r.

__device__ __forceinline__ f32x16 mfma_32x32x8_f16(u32x2 a, u32x2 b, f32x16 c) {
    typedef _Float16 f16x4 __attribute__((vector_size(8)));
    return __builtin_amdgcn_mfma_f32_32x32x8f16(__builtin_bit_cast(f16x4, a), __builtin_bit_cast(f16x4, b), c, 0, 0, 0);
}

__device__ __forceinline__ f32x16 mfma_32x32x8_bf16(u32x2 a, u32x2 b, f32x16 c) {
    typedef short s16x4 __attribute__((vector_size(8)));
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(
        __builtin_bit_cast(s16x4, a), __builtin_bit_cast(s16x4, b), c, 0, 0, 0);
}

__device__ __forceinline__ f32x16 mfma_32x32x16_fp8(u32x2 a, u32x2 b, f32x16 c) {
    return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(
        __builtin_bit_cast(long, a), __builtin_bit_cast(long, b), c, 0, 0, 0);
}

/// Products of kSize x kSize; kType as in kernel.h.
template <int kSize, int kType>
struct Product;

template <int kType>
struct Product<16, kType> {
    using Sums = f32x4;
    static __device__ __forceinline__ Sums add(u32x2 a, u32x2 b, Sums c) {
        if (kType == 0) return mfma_16x16x16_f16(a, b, c);
        if (kType == 1) return mfma_16x16x16_bf16(a, b, c);
        return mfma_16x16x32_fp8(a, b, c);
    }
    static __device__ __forceinline__ int row(int lane, int i) { return lane / 16 * 4 + i; }
};

template <int kType>
struct Product<32, kType> {
    using Sums = f32x16;
    static __device__ __forceinline__ Sums add(u32x2 a, u32x2 b, Sums c) {
        if (kType == 0) return mfma_32x32x8_f16(a, b, c);
        if (kType == 1) return mfma_32x32x8_bf16(a, b, c);
        return mfma_32x32x16_fp8(a, b, c);
    }
    static __device__ __forceinline__ int row(int lane, int i) { return i / 4 * 8 + lane / 32 * 4 + i % 4; }
};

/// A workgroup per tile, a wave per kSize of its 64 rows.
template <int kSize, int kType>
__global__ void __launch_bounds__(64 * 64 / kSize)
    tile_kernel(const uint8_t* a, const uint8_t* b, float* c, int n, int bytes) {
    using Step = Product<kSize, kType>;
    constexpr int kSlice = 8 * 64 / kSize;  // bytes of K of one product: 8 a lane
    const int lane = static_cast<int>(threadIdx.x) % 64, first = static_cast<int>(threadIdx.x) / 64 * kSize;
    const size_t tile = blockIdx.x, pitch = static_cast<size_t>(bytes);
    const uint8_t* const row = a + (tile * 64 + static_cast<size_t>(first + lane % kSize)) * pitch + lane / kSize * 8;
    for (int left = 0; left < n; left += kSize) {
        const int column = left + lane % kSize;
        const bool inside = column < n;
        const uint8_t* const other =
            b + (tile * n + static_cast<size_t>(inside ? column : 0)) * pitch + lane / kSize * 8;
        typename Step::Sums sums = {};
        for (int k = 0; k < bytes; k += kSlice)
            sums =
                Step::add(*reinterpret_cast<const u32x2*>(row + k), *reinterpret_cast<const u32x2*>(other + k), sums);
        constexpr int kEach = kSize * kSize / 64;
#pragma unroll
        for (int i = 0; i < kEach; ++i)
            if (inside) c[(tile * 64 + static_cast<size_t>(first + Step::row(lane, i))) * n + column] = sums[i];
    }
}

template <int kSize, int kType>
int launch_tiles(const void* a, const void* b, float* c, int n, int bytes, int repeat, void* queue) {
    const auto kernel = tile_kernel<kSize, kType>;
    LAUNCH(kernel, dim3(repeat), dim3(64 * 64 / kSize), 0, queue)
    (static_cast<const uint8_t*>(a), static_cast<const uint8_t*>(b), c, n, bytes);
    return LAUNCH_STATUS();
}

/// wgmma_tile() by products of kSize x kSize.
template <int kSize>
int multiply(const void* a, const void* b, float* c, int n, int k, int type, int repeat, void* queue) {
    const int bytes = k * (type == 3 ? 1 : 2);
    if (n <= 0 || k <= 0 || repeat <= 0 || bytes % 32 != 0) return kUnsupportedShape;
    switch (type) {
        case 0: return launch_tiles<kSize, 0>(a, b, c, n, bytes, repeat, queue);
        case 1: return launch_tiles<kSize, 1>(a, b, c, n, bytes, repeat, queue);
        case 3: return launch_tiles<kSize, 3>(a, b, c, n, bytes, repeat, queue);
        default: return kUnsupportedShape;  // TF32: not of these instructions
    }
}
