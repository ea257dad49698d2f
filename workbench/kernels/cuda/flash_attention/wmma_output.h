// SPDX-License-Identifier: MIT
// P V by WMMA: probabilities rounded to bf16, the output in shared memory, where its rows can be rescaled.
#pragma once

#include "wmma_tile.h"

/// A row's half: probabilities to bf16, and the output so far times `correction`.
__device__ inline void round_row(__nv_bfloat16* rounded, const float* scores, float* out, float correction, int half) {
    for (int j = half * 32; j < half * 32 + 32; ++j) {
        rounded[j] = __float2bfloat16(scores[j]);
        out[j] *= correction;  // kHeadDim == kTileKeys
    }
}

/// out[16 rows of this warp][64] += P V.
__device__ inline void multiply_output(float* out, const __nv_bfloat16* rounded, const __nv_bfloat16* values) {
    static_assert(kHeadDim == kTileKeys, "one pitch serves scores and outputs");
    const int warp = threadIdx.x / 32;
#pragma unroll
    for (int n = 0; n < kHeadDim / 16; ++n) {
        Sums sum;
        float* const at = out + warp * 16 * kWidePitch + n * 16;
        nvcuda::wmma::load_matrix_sync(sum, at, kWidePitch, nvcuda::wmma::mem_row_major);
#pragma unroll
        for (int j = 0; j < kTileKeys / 16; ++j) {
            OperandA a;
            OperandValues b;
            nvcuda::wmma::load_matrix_sync(a, rounded + warp * 16 * kPitch + j * 16, kPitch);
            nvcuda::wmma::load_matrix_sync(b, values + j * 16 * kPitch + n * 16, kPitch);
            nvcuda::wmma::mma_sync(sum, a, b, sum);
        }
        nvcuda::wmma::store_matrix_sync(at, sum, kWidePitch, nvcuda::wmma::mem_row_major);
    }
}

/// Write the row of this thread and its neighbour.
__device__ inline void store_row(const Step& p, int row, int half, const float* out, SoftmaxRow state) {
    state.sum += __shfl_xor_sync(0xffffffffu, state.sum, 1);
    if (row >= p.queries) return;
    for (int c = half * 32; c < half * 32 + 32; ++c) {
        p.o[p.query_row(row) + c] = __float2bfloat16(out[c] * state.inverse());
    }
    if (half == 0) p.store_lse(row, state);
}
