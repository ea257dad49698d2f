// SPDX-License-Identifier: MIT
//!KERNEL summary as 3, tiles brought by cp.async, double-buffered
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 4 cp.async, two stages
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 0-40us@L4
//
// Keys and values of the next tile are on their way (16 bytes a copy) while this one is multiplied; one barrier per tile.
#include "ptx/cp_async.h"
#include "wmma_output.h"

struct Memory {
    __nv_bfloat16 query[kRows * kPitch], keys[2][kTileKeys * kPitch], values[2][kTileKeys * kPitch];
    __nv_bfloat16 rounded[kRows * kPitch];
    float scores[kRows * kWidePitch], out[kRows * kWidePitch];
};

template <class Row>
__device__ void copy_tile(__nv_bfloat16* tile, const __nv_bfloat16* from, int count, Row row) {
    for (int i = threadIdx.x; i < 64 * 8; i += kThreads) {
        const int r = i / 8, chunk = i % 8 * 8;
        const bool inside = r < count;
        cp_async_16(shared_address(tile + r * kPitch + chunk), from + (inside ? row(r) + chunk : 0), inside);
    }
}

__global__ void __launch_bounds__(kThreads) wmma_cp_async_step(const Step p) {
    extern __shared__ __align__(128) unsigned char raw[];
    Memory& m = *reinterpret_cast<Memory*>(raw);
    const int tile = blockIdx.x * kRows, own = threadIdx.x / 2, half = threadIdx.x % 2, row = tile + own;
    const int end = p.seen_by_tile(tile, kRows);
    const auto fetch = [&](int first, int buffer) {
        if (first < end) {
            copy_tile(m.keys[buffer], p.k, p.keys - first, [&](int r) { return p.key_row(first + r); });
            copy_tile(m.values[buffer], p.v, p.keys - first, [&](int r) { return p.key_row(first + r); });
        }
        cp_async_commit();
    };
    copy_tile(m.query, p.q, p.queries - tile, [&](int r) { return p.query_row(tile + r); });
    fetch(0, 0);
    for (int i = threadIdx.x; i < kRows * kWidePitch; i += kThreads) m.out[i] = 0.0f;
    float *const scores = m.scores + own * kWidePitch, *const out = m.out + own * kWidePitch;
    SoftmaxRow state;
    for (int first = 0, buffer = 0; first < end; first += kTileKeys, buffer ^= 1) {
        cp_async_wait<0>();
        __syncthreads();  // this tile is here, and everyone has read the one before
        fetch(first + kTileKeys, buffer ^ 1);
        multiply_scores(m.scores, m.query, m.keys[buffer]);
        __syncwarp();
        const int visible = row < p.queries ? p.seen(row) - first : 0;
        const float correction = softmax_row(scores, state, half, visible, p.scale);
        round_row(m.rounded + own * kPitch, scores, out, correction, half);
        __syncwarp();
        multiply_output(m.out, m.rounded, m.values[buffer]);
        __syncwarp();
    }
    cp_async_wait<0>();
    __syncthreads();
    store_row(p, row, half, out, state);
}

LADDER_STEP(wmma_cp_async_step, kRows, kThreads, sizeof(Memory))
