// SPDX-License-Identifier: MIT
//!KERNEL summary Q K^T by WMMA, softmax and P V in scalar code
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 2 Q K^T by WMMA
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 400-600us@L4
//
// 64 x 64 tiles, four warps. Scores go through shared memory, since WMMA does not say which thread holds what. Two threads
// own a row: each takes half the exponentials and half the output columns.
#include "wmma_tile.h"

constexpr int kQueries = 64, kKeys = 64;

template <class T>
struct Memory {
    using Tile = WmmaTile<T, kQueries, kKeys>;
    T query[kQueries * kPitch], keys[kKeys * kPitch], values[kKeys * kPitch];
    float scores[kQueries * Tile::kScorePitch];
};

template <class T>
__global__ void __launch_bounds__(2 * kQueries) wmma_scores_step(const Step<T> p) {
    using Tile = WmmaTile<T, kQueries, kKeys>;
    extern __shared__ __align__(128) unsigned char raw[];
    Memory<T>& m = *reinterpret_cast<Memory<T>*>(raw);
    const int tile = blockIdx.x * kQueries, own = threadIdx.x / 2, half = threadIdx.x % 2, row = tile + own;
    const bool valid = row < p.queries;
    Tile::template load<kQueries>(m.query, p.q, p.queries - tile, [&](int r) { return p.query_row(tile + r); });
    float out[kHeadDim / 2] = {};
    SoftmaxRow state;
    const int end = p.seen_by_tile(tile, kQueries);
    for (int first = 0; first < end; first += kKeys) {
        const auto from = [&](int r) { return p.key_row(first + r); };
        __syncthreads();
        Tile::template load<kKeys>(m.keys, p.k, p.keys - first, from);
        Tile::template load<kKeys>(m.values, p.v, p.keys - first, from);
        __syncthreads();
        Tile::multiply_scores(m.scores, m.query, m.keys);
        __syncwarp();  // a warp's rows are its own
        float* const scores = m.scores + own * Tile::kScorePitch;
        const float correction = Tile::softmax(scores, state, half, valid ? p.seen(row) - first : 0, p.scale);
        __syncwarp();
#pragma unroll
        for (int c = 0; c < kHeadDim / 2; ++c) out[c] *= correction;
        for (int j = 0; j < kKeys; ++j) {
#pragma unroll
            for (int c = 0; c < kHeadDim / 2; ++c) {
                out[c] += scores[j] * to_float(m.values[j * kPitch + half * (kHeadDim / 2) + c]);
            }
        }
    }
    state.sum += __shfl_xor_sync(0xffffffffu, state.sum, 1);
    if (!valid) return;
#pragma unroll
    for (int c = 0; c < kHeadDim / 2; ++c) {
        p.o[p.query_row(row) + half * (kHeadDim / 2) + c] = rounded<T>(out[c] * state.inverse());
    }
    if (half == 0) p.store_lse(row, state);
}

LADDER_STEP(wmma_scores_step, kQueries, 2 * kQueries, sizeof(Memory<T>))
