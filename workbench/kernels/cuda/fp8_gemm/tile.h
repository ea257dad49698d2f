// SPDX-License-Identifier: MIT
// What the steps of the GEMM ladder share: a 128 x 128 tile of c by two warpgroups, its products, promotion and stores.
#pragma once

#include <cuda_bf16.h>

#include "ceil_div.h"
#include "kernel.h"
#include "launch.h"
#include "ptx/ldst.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

constexpr int kTile = 128, kBlock = 128, kThreads = 256;  // rows and columns of c; of k; two warpgroups of 64 rows
constexpr int kTileBytes = kTile * kBlock;                // of either operand

struct Product {
    const uint8_t *a, *b;
    const float *a_scale, *b_scale;
    __nv_bfloat16* c;
    int m, n, k;
};

/// The sums of one thread: rows `row` and row + 8 of the tile, columns 8j + 2t and the next.
struct Sums {
    float total[kTile / 2] = {};
    int row, lane;

    __device__ Sums() : row(threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4), lane(threadIdx.x % 32) {}

    /// Multiply one block of k, whose operands lie at `a` and `b` in the 128-byte swizzle, and add it in fp32, scaled.
    __device__ __forceinline__ void add(
        const Product& p, uint32_t a, uint32_t b, int block, int first_row, int first_column) {
        float partial[kTile / 2];
        const uint64_t rows = wgmma_operand(a + threadIdx.x / 128 * (64 * kBlock)), columns = wgmma_operand(b);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < kBlock / 32; ++i) Wgmma<kTile>::product(partial, rows + 2 * i, columns + 2 * i, i > 0);
        wgmma_commit();
        const float b_scale = p.b_scale[static_cast<size_t>(first_column / 128) * (p.k / 128) + block];
        float scales[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int i = first_row + row + 8 * half;
            scales[half] = i < p.m ? p.a_scale[static_cast<size_t>(block) * p.m + i] * b_scale : 0.0f;
        }
        wgmma_wait<0>();
        wgmma_results(partial);
#pragma unroll
        for (int i = 0; i < kTile / 2; ++i) total[i] += scales[i % 4 / 2] * partial[i];
    }

    __device__ __forceinline__ void store(const Product& p, int first_row, int first_column) const {
#pragma unroll
        for (int i = 0; i < kTile / 2; ++i) {
            const int r = first_row + row + i % 4 / 2 * 8, column = first_column + i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (r < p.m && column < p.n) p.c[static_cast<size_t>(r) * p.n + column] = __float2bfloat16(total[i]);
        }
    }
};

inline Product describe(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k) {
    return {
        static_cast<const uint8_t*>(a),
        static_cast<const uint8_t*>(b),
        a_scale,
        b_scale,
        static_cast<__nv_bfloat16*>(c),
        m,
        n,
        k};
}

inline bool supported(int m, int n, int k) { return m > 0 && n > 0 && k > 0 && k % kBlock == 0 && m <= 65535 * kTile; }
