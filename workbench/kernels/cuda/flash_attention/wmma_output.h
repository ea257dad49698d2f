// SPDX-License-Identifier: MIT
// P V by WMMA: rounded probabilities, the output in shared memory, where its rows can be rescaled.
#pragma once

#include "wmma_tile.h"

template <class T, int kQueries, int kKeys>
struct WmmaOutput : WmmaTile<T, kQueries, kKeys> {
    using Tile = WmmaTile<T, kQueries, kKeys>;

    /// A row's half: rounded probabilities, and the output so far times `correction`.
    static __device__ void round_row(T* p, const float* scores, float* out, float correction, int half) {
        for (int j = half * kKeys / 2; j < (half + 1) * kKeys / 2; ++j) p[j] = rounded<T>(scores[j]);
        for (int c = half * kHeadDim / 2; c < (half + 1) * kHeadDim / 2; ++c) out[c] *= correction;
    }

    /// out[16 rows of this warp][64] += P V.
    static __device__ void multiply_output(float* out, const T* p, const T* values) {
        const int warp = threadIdx.x / 32;
#pragma unroll
        for (int n = 0; n < kHeadDim / 16; ++n) {
            typename Tile::Sums sum;
            float* const at = out + warp * 16 * kOutPitch + n * 16;
            nvcuda::wmma::load_matrix_sync(sum, at, kOutPitch, nvcuda::wmma::mem_row_major);
#pragma unroll
            for (int j = 0; j < kKeys / 16; ++j) {
                typename Tile::OperandA a;
                typename Tile::OperandValues b;
                nvcuda::wmma::load_matrix_sync(a, p + warp * 16 * Tile::kRoundedPitch + j * 16, Tile::kRoundedPitch);
                nvcuda::wmma::load_matrix_sync(b, values + j * 16 * kPitch + n * 16, kPitch);
                nvcuda::wmma::mma_sync(sum, a, b, sum);
            }
            nvcuda::wmma::store_matrix_sync(at, sum, kOutPitch, nvcuda::wmma::mem_row_major);
        }
    }

    /// One tile's softmax and second product, for the row of this thread and its neighbour; scores are there.
    template <class Memory>
    static __device__ void attend(
        Memory& m, const T* values, SoftmaxRow& state, int own, int half, int visible, float scale) {
        float *const scores = m.scores + own * Tile::kScorePitch, *const out = m.out + own * kOutPitch;
        __syncwarp();  // a warp's rows are its own
        const float correction = Tile::softmax(scores, state, half, visible, scale);
        round_row(m.rounded + own * Tile::kRoundedPitch, scores, out, correction, half);
        __syncwarp();
        multiply_output(m.out, m.rounded, values);
        __syncwarp();
    }

    /// Write the row of this thread and its neighbour.
    static __device__ void store_row(const Step<T>& p, int row, int half, const float* out, SoftmaxRow state) {
        state.sum += __shfl_xor_sync(0xffffffffu, state.sum, 1);
        if (row >= p.queries) return;
        for (int c = half * 32; c < half * 32 + 32; ++c)
            p.o[p.query_row(row) + c] = rounded<T>(out[c] * state.inverse());
        if (half == 0) p.store_lse(row, state);
    }
};
