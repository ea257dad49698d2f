// SPDX-License-Identifier: MIT
//!KERNEL summary as 4, tiles loaded by warps of their own
//!KERNEL arch sm_89 sm_90a
//!KERNEL tune LOADERS=1,2
//!KERNEL step 4c warps that only load
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 0-44us@L4
//
// One warp or two issue every copy, four multiply; named barriers hand the two stages over and back. Does that pay where a copy is
// still an instruction per thread and 16 bytes, as it is before TMA?
#include "ptx/barrier.h"
#include "wmma_copies.h"

constexpr int kQueries = 64, kKeys = 64, kStages = 2;
constexpr int kMultiplying = 2 * kQueries, kLoading = 32 * LOADERS, kThreads = kMultiplying + kLoading;

/// The barriers of a stage: its tile is there, or has been read.
__device__ __forceinline__ int full(int stage) { return 1 + stage; }
__device__ __forceinline__ int empty(int stage) { return 1 + kStages + stage; }

template <class T>
__global__ void __launch_bounds__(kThreads) producer_step(const Step<T> p) {
    using Tile = WmmaOutput<T, kQueries, kKeys>;
    using Memory = CopiedTiles<T, kQueries, kKeys, kStages>;
    extern __shared__ __align__(128) unsigned char raw[];
    Memory& m = *reinterpret_cast<Memory*>(raw);
    const int tile = blockIdx.x * kQueries, steps = ceil_div(p.seen_by_tile(tile, kQueries), kKeys);
    if (threadIdx.x >= kMultiplying) {
        const int thread = threadIdx.x - kMultiplying;
        if (steps > 0) {
            copy_tile<kQueries>(
                m.query, p.q, p.queries - tile, thread, kLoading, [&](int r) { return p.query_row(tile + r); });
        }
        for (int step = 0; step < steps; ++step) {
            const int stage = step % kStages, first = step * kKeys;
            const auto from = [&](int r) { return p.key_row(first + r); };
            if (step >= kStages) named_barrier_sync(empty(stage), kThreads);
            copy_tile<kKeys>(m.keys[stage], p.k, p.keys - first, thread, kLoading, from);
            copy_tile<kKeys>(m.values[stage], p.v, p.keys - first, thread, kLoading, from);
            cp_async_commit();
            if (step > 0) {  // the tile before is there once only this one is in flight
                cp_async_wait<1>();
                named_barrier_arrive(full((step - 1) % kStages), kThreads);
            }
        }
        if (steps > 0) {
            cp_async_wait<0>();
            named_barrier_arrive(full((steps - 1) % kStages), kThreads);
        }
        return;
    }
    const int own = threadIdx.x / 2, half = threadIdx.x % 2, row = tile + own;
    float* const out = m.out + own * kOutPitch;
    for (int c = half * 32; c < half * 32 + 32; ++c) out[c] = 0.0f;
    SoftmaxRow state;
    for (int step = 0; step < steps; ++step) {
        const int stage = step % kStages;
        named_barrier_sync(full(stage), kThreads);
        Tile::multiply_scores(m.scores, m.query, m.keys[stage]);
        Tile::attend(m, m.values[stage], state, own, half, row < p.queries ? p.seen(row) - step * kKeys : 0, p.scale);
        if (step + kStages < steps) named_barrier_arrive(empty(stage), kThreads);
    }
    Tile::store_row(p, row, half, out, state);
}

LADDER_STEP(producer_step, kQueries, kThreads, (sizeof(CopiedTiles<T, kQueries, kKeys, kStages>)))
