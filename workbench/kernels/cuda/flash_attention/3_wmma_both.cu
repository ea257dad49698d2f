// SPDX-License-Identifier: MIT
//!KERNEL summary both products by WMMA, copies element by element
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 3 P V by WMMA, O in shared memory
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 150-250us@L4
//
// As 2, but P is rounded to 16 bits and multiplied with V by WMMA. The output lies in shared memory between tiles: a fragment's
// rows are unknown, so only there can each row be corrected when its maximum grows.
#include "wmma_output.h"

constexpr int kQueries = 64, kKeys = 64;

template <class T>
struct Memory {
    using Tile = WmmaOutput<T, kQueries, kKeys>;
    T query[kQueries * kPitch], keys[kKeys * kPitch], values[kKeys * kPitch];
    T rounded[kQueries * Tile::kRoundedPitch];
    float scores[kQueries * Tile::kScorePitch], out[kQueries * kOutPitch];
};

template <class T>
__global__ void __launch_bounds__(2 * kQueries) wmma_both_step(const Step<T> p) {
    using Tile = WmmaOutput<T, kQueries, kKeys>;
    extern __shared__ __align__(128) unsigned char raw[];
    Memory<T>& m = *reinterpret_cast<Memory<T>*>(raw);
    const int tile = blockIdx.x * kQueries, own = threadIdx.x / 2, half = threadIdx.x % 2, row = tile + own;
    Tile::template load<kQueries>(m.query, p.q, p.queries - tile, [&](int r) { return p.query_row(tile + r); });
    for (int i = threadIdx.x; i < kQueries * kOutPitch; i += Tile::kThreads) m.out[i] = 0.0f;
    SoftmaxRow state;
    const int end = p.seen_by_tile(tile, kQueries);
    for (int first = 0; first < end; first += kKeys) {
        const auto from = [&](int r) { return p.key_row(first + r); };
        __syncthreads();
        Tile::template load<kKeys>(m.keys, p.k, p.keys - first, from);
        Tile::template load<kKeys>(m.values, p.v, p.keys - first, from);
        __syncthreads();
        Tile::multiply_scores(m.scores, m.query, m.keys);
        Tile::attend(m, m.values, state, own, half, row < p.queries ? p.seen(row) - first : 0, p.scale);
    }
    __syncthreads();
    Tile::store_row(p, row, half, m.out + own * kOutPitch, state);
}

LADDER_STEP(wmma_both_step, kQueries, 2 * kQueries, sizeof(Memory<T>))
