// SPDX-License-Identifier: MIT
// P V by MFMA: rounded probabilities come through LDS, sums stay in registers. The factors that a row's sums are corrected with
// go through LDS, too, since other threads know them.
#pragma once

#include "mfma_tile.h"

constexpr int kOutTiles = kHeadDim / 16;

/// LDS of a workgroup besides its tiles.
struct Scratch {
    float scores[kRows * kScorePitch];
    alignas(16) uint16_t rounded[kRows * kPitch];
    float factors[kRows];
};

/// One tile's softmax and second product: `out` += P V. Scores are there; the workgroup calls it together.
template <class Half>
__device__ __forceinline__ void attend(
    Scratch& m, f32x4 (&out)[kOutTiles], const uint16_t* values, SoftmaxRow& state, int visible, float scale) {
    const int own = static_cast<int>(threadIdx.x) / 4, quarter = static_cast<int>(threadIdx.x) % 4;
    float* const scores = m.scores + own * kScorePitch;
    __syncthreads();
    const float correction = softmax_row(scores, state, quarter, visible, scale);
    for (int j = quarter; j < kKeys; j += 4) m.rounded[own * kPitch + j] = rounded<Half>(scores[j]);
    if (quarter == 0) m.factors[own] = correction;
    __syncthreads();
    const int first = wave_id() * 16;
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) out[n][i] *= m.factors[first + 4 * group_of_lane() + i];
#pragma unroll
        for (int j = 0; j < kKeys / 16; ++j) {
            const int key = 16 * j + 4 * group_of_lane();
            const u32x2 p = *reinterpret_cast<const u32x2*>(m.rounded + (first + row_of_lane()) * kPitch + key);
            out[n] = Half::multiply(p, value_column(values, key, n * 16 + row_of_lane()), out[n]);
        }
    }
}

/// Write the rows of this workgroup, from `tile` on; together, after a barrier.
template <class Half>
__device__ __forceinline__ void store_rows(
    const Step& p, Scratch& m, const f32x4 (&out)[kOutTiles], SoftmaxRow state, int tile) {
    const int own = static_cast<int>(threadIdx.x) / 4;
    state.sum = row_sum(state.sum);
    if (threadIdx.x % 4 == 0) {
        m.factors[own] = state.inverse();
        if (tile + own < p.queries) p.store_lse(tile + own, state);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int within = wave_id() * 16 + 4 * group_of_lane() + i;
        if (tile + within >= p.queries) continue;
        uint16_t* const to = p.o + p.query_row(tile + within) + row_of_lane();
#pragma unroll
        for (int n = 0; n < kOutTiles; ++n) to[n * 16] = rounded<Half>(out[n][i] * m.factors[within]);
    }
}
