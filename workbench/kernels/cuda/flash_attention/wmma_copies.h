// SPDX-License-Identifier: MIT
// Tiles of the WMMA steps by cp.async, and the kernel of the steps that fetch the next tile while this one is multiplied.
#pragma once

#include "ptx/cp_async.h"
#include "ptx/ldst.h"
#include "wmma_output.h"

/// A tile of rows by `threads` threads, of which this one is `thread`, 16 bytes a copy; rows past `count` become zero.
template <int kRows, class T, class Row>
__device__ void copy_tile(T* tile, const T* from, int count, int thread, int threads, Row row) {
    for (int i = thread; i < kRows * 8; i += threads) {
        const int r = i / 8, chunk = i % 8 * 8;
        const bool inside = r < count;
        cp_async_16(shared_address(tile + r * kPitch + chunk), from + (inside ? row(r) + chunk : 0), inside);
    }
}

/// Shared memory of a block with kStages tiles of keys and values.
template <class T, int kQueries, int kKeys, int kStages>
struct CopiedTiles {
    using Tile = WmmaOutput<T, kQueries, kKeys>;
    T query[kQueries * kPitch], keys[kStages][kKeys * kPitch], values[kStages][kKeys * kPitch];
    T rounded[kQueries * Tile::kRoundedPitch];
    float scores[kQueries * Tile::kScorePitch], out[kQueries * kOutPitch];
};

/// Steps 4 and 4b: with two stages the next tile is under way during the products, with one it is waited for.
template <class T, int kQueries, int kKeys, int kStages>
__global__ void __launch_bounds__(2 * kQueries) copied_step(const Step<T> p) {
    static_assert(kStages == 1 || kStages == 2, "in flight is one tile at most");
    using Tile = WmmaOutput<T, kQueries, kKeys>;
    using Memory = CopiedTiles<T, kQueries, kKeys, kStages>;
    extern __shared__ __align__(128) unsigned char raw[];
    Memory& m = *reinterpret_cast<Memory*>(raw);
    const int thread = threadIdx.x, tile = blockIdx.x * kQueries, own = thread / 2, half = thread % 2, row = tile + own;
    const int end = p.seen_by_tile(tile, kQueries);
    const auto fetch = [&](int first, int stage) {
        if (first < end) {
            const auto from = [&](int r) { return p.key_row(first + r); };
            copy_tile<kKeys>(m.keys[stage], p.k, p.keys - first, thread, Tile::kThreads, from);
            copy_tile<kKeys>(m.values[stage], p.v, p.keys - first, thread, Tile::kThreads, from);
        }
        cp_async_commit();
    };
    copy_tile<kQueries>(
        m.query, p.q, p.queries - tile, thread, Tile::kThreads, [&](int r) { return p.query_row(tile + r); });
    if (kStages == 2) fetch(0, 0);
    for (int i = thread; i < kQueries * kOutPitch; i += Tile::kThreads) m.out[i] = 0.0f;
    SoftmaxRow state;
    for (int first = 0, stage = 0; first < end; first += kKeys, stage = (stage + 1) % kStages) {
        if (kStages == 1) {
            __syncthreads();  // everyone has read the tile before
            fetch(first, 0);
        }
        cp_async_wait<0>();
        __syncthreads();  // this tile is here, and everyone has read the one before
        if (kStages == 2) fetch(first + kKeys, stage ^ 1);
        Tile::multiply_scores(m.scores, m.query, m.keys[stage]);
        Tile::attend(m, m.values[stage], state, own, half, row < p.queries ? p.seen(row) - first : 0, p.scale);
    }
    cp_async_wait<0>();
    __syncthreads();
    Tile::store_row(p, row, half, m.out + own * kOutPitch, state);
}
