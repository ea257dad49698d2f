// SPDX-License-Identifier: MIT
// Tiles in shared memory for the WMMA steps: rows of 64 elements, and fp32 scores and outputs, with padded pitches.
#pragma once

#include <mma.h>

#include "step.h"

constexpr int kPitch = kHeadDim + 8;     // elements of a row of Q, K or V; eight rows start at different banks
constexpr int kOutPitch = kHeadDim + 4;  // floats of a row of the output

/// A tile of kQueries x kKeys: a warp per 16 queries, two threads to a row, which take half of its keys and columns each.
template <class T, int kQueries_, int kKeys_>
struct WmmaTile {
    static constexpr int kQueries = kQueries_, kKeys = kKeys_, kThreads = 2 * kQueries;
    static constexpr int kScorePitch = kKeys + 4;    // floats
    static constexpr int kRoundedPitch = kKeys + 8;  // elements

    using OperandA = nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, T, nvcuda::wmma::row_major>;
    using OperandKeys = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, T, nvcuda::wmma::col_major>;
    using OperandValues = nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, T, nvcuda::wmma::row_major>;
    using Sums = nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>;

    /// Element by element; rows past `count` are zero, so that a masked probability of 0 never meets a NaN.
    template <int kRows, class Row>
    static __device__ void load(T* tile, const T* from, int count, Row row) {
        for (int i = threadIdx.x; i < kRows * kHeadDim; i += kThreads) {
            const int r = i / kHeadDim, c = i % kHeadDim;
            tile[r * kPitch + c] = r < count ? from[row(r) + c] : rounded<T>(0.0f);
        }
    }

    /// scores[16 rows of this warp][kKeys] = Q K^T.
    static __device__ void multiply_scores(float* scores, const T* query, const T* keys) {
        const int warp = threadIdx.x / 32;
#pragma unroll
        for (int n = 0; n < kKeys / 16; ++n) {
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
                scores + warp * 16 * kScorePitch + n * 16, sum, kScorePitch, nvcuda::wmma::mem_row_major);
        }
    }

    /// The softmax of one row by the two threads that own it: scores become probabilities. Returns what everything before is
    /// to be multiplied with. `state.sum` is this thread's share.
    static __device__ float softmax(float* scores, SoftmaxRow& state, int half, int visible, float scale) {
        constexpr int kShare = kKeys / 2;
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
};
