// SPDX-License-Identifier: MIT
//!KERNEL summary Q K^T by MFMA, softmax and P V in scalar code
//!KERNEL arch gfx942
//!KERNEL step 2 Q K^T by MFMA
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 45-80us@MI300
//
// Four waves, 64 keys at a time. Scores go through LDS. Four threads own a row: each takes a quarter of the exponentials and of
// the output columns.
#include "mfma_tile.h"

constexpr int kOwnColumns = kHeadDim / 4;

template <class Half>
__global__ void __launch_bounds__(kThreads) mfma_scores_step(Step p) {
    __shared__ alignas(16) uint16_t keys[kKeys * kPitch];
    __shared__ alignas(16) uint16_t values[kKeys * kPitch];
    __shared__ float all_scores[kRows * kScorePitch];
    const int tile = static_cast<int>(blockIdx.x) * kRows;
    const int own = static_cast<int>(threadIdx.x) / 4, quarter = static_cast<int>(threadIdx.x) % 4, row = tile + own;
    u32x2 q[kHeadDim / 16];
    load_queries(q, p, tile + wave_id() * 16);
    float out[kOwnColumns] = {};
    SoftmaxRow state;
    float* const scores = all_scores + own * kScorePitch;
    const int end = p.seen_by_tile(tile);
    for (int first = 0; first < end; first += kKeys) {
        __syncthreads();
        load_tile(keys, p.k, p, first);
        load_tile(values, p.v, p, first);
        __syncthreads();
        multiply_scores<Half>(all_scores, q, keys);
        __syncthreads();
        const float correction =
            softmax_row(scores, state, quarter, row < p.queries ? p.seen(row) - first : 0, p.scale);
        __syncthreads();
#pragma unroll
        for (int c = 0; c < kOwnColumns; ++c) out[c] *= correction;
        for (int j = 0; j < kKeys; ++j) {
#pragma unroll
            for (int c = 0; c < kOwnColumns; ++c)
                out[c] += scores[j] * Half::low(values[j * kPitch + quarter * kOwnColumns + c]);
        }
    }
    state.sum = row_sum(state.sum);
    if (row >= p.queries) return;
#pragma unroll
    for (int c = 0; c < kOwnColumns; ++c)
        p.o[p.query_row(row) + quarter * kOwnColumns + c] = rounded<Half>(out[c] * state.inverse());
    if (quarter == 0) p.store_lse(row, state);
}

LADDER_STEP(mfma_scores_step, kThreads)
