// SPDX-License-Identifier: MIT
// Tiles in shared memory for the WMMA steps: 64 rows of 64 bf16, and fp32 scores and outputs, with padded pitches.
#pragma once

#include <mma.h>

#include "step.h"

constexpr int kRows = 64, kTileKeys = 64, kThreads = 128;  // four warps, 16 query rows each
constexpr int kPitch = kHeadDim + 8;                       // bf16 elements; eight rows start at different banks
constexpr int kWidePitch = kTileKeys + 4;                  // floats

using OperandA = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __nv_bfloat16, nvcuda::wmma::row_major>;
using OperandKeys = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __nv_bfloat16, nvcuda::wmma::col_major>;
using OperandValues =
    nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __nv_bfloat16, nvcuda::wmma::row_major>;
using Sums = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;

/// Element by element; rows past `count` are zero, so that a masked probability of 0 never meets a NaN.
template <class Row>
__device__ void load_tile(__nv_bfloat16* tile, const __nv_bfloat16* from, int count, Row row) {
    for (int i = threadIdx.x; i < 64 * kHeadDim; i += kThreads) {
        const int r = i / kHeadDim, c = i % kHeadDim;
        tile[r * kPitch + c] = r < count ? from[row(r) + c] : __float2bfloat16(0.0f);
    }
}

/// scores[16 rows of this warp][64] = Q K^T.
__device__ inline void multiply_scores(float* scores, const __nv_bfloat16* query, const __nv_bfloat16* keys) {
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int n = 0; n < kTileKeys / 16; ++n) {
        Sums sum;
        nvcuda::wmma::fill_fragment(sum, 0.0f);
#pragma unroll
        for (int c = 0; c < kHeadDim / 16; ++c) {
            OperandA a;
            OperandKeys b;
            nvcuda::wmma::load_matrix_sync(a, query + warp * 16 * kPitch + c * 16, kPitch);
            nvcuda::wmma::load_matrix_sync(b, keys + n * 16 * kPitch + c * 16, kPitch);
            nvcuda::wmma::mma_sync(sum, a, b, sum);
        }
        nvcuda::wmma::store_matrix_sync(
            scores + warp * 16 * kWidePitch + n * 16, sum, kWidePitch, nvcuda::wmma::mem_row_major);
    }
}

/// The softmax of one row by the two threads that own it, half the keys each: scores become probabilities. Returns what
/// everything before is to be multiplied with. `state.sum` is this thread's share.
__device__ inline float softmax_row(float* scores, SoftmaxRow& state, int half, int visible, float scale) {
    constexpr int kShare = kTileKeys / 2;
    float largest = -INFINITY;
    for (int j = half * kShare; j < (half + 1) * kShare; ++j) {
        if (j >= visible) scores[j] = -INFINITY;
        largest = fmaxf(largest, scores[j]);
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    const float correction = state.raise(largest, scale, Exp2()), shift = state.shift(scale);
    for (int j = half * kShare; j < (half + 1) * kShare; ++j) {
        scores[j] = Exp2()(scores[j] * scale - shift);
        state.sum += scores[j];
    }
    return correction;
}
