// SPDX-License-Identifier: MIT
//!KERNEL summary both products by WMMA, copies element by element
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 3 P V by WMMA, O in shared memory
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 150-250us@L4
//
// As 2, but P is rounded to bf16 and multiplied with V by WMMA. The output lies in shared memory between tiles: a fragment's
// rows are unknown, so only there can each row be corrected when its maximum grows.
#include "wmma_output.h"

struct Memory {
    __nv_bfloat16 query[kRows * kPitch], keys[kTileKeys * kPitch], values[kTileKeys * kPitch], rounded[kRows * kPitch];
    float scores[kRows * kWidePitch], out[kRows * kWidePitch];
};

__global__ void __launch_bounds__(kThreads) wmma_both_step(const Step p) {
    extern __shared__ __align__(128) unsigned char raw[];
    Memory& m = *reinterpret_cast<Memory*>(raw);
    const int tile = blockIdx.x * kRows, own = threadIdx.x / 2, half = threadIdx.x % 2, row = tile + own;
    load_tile(m.query, p.q, p.queries - tile, [&](int r) { return p.query_row(tile + r); });
    for (int i = threadIdx.x; i < kRows * kWidePitch; i += kThreads) m.out[i] = 0.0f;
    float *const scores = m.scores + own * kWidePitch, *const out = m.out + own * kWidePitch;
    SoftmaxRow state;
    const int end = p.seen_by_tile(tile, kRows);
    for (int first = 0; first < end; first += kTileKeys) {
        __syncthreads();
        load_tile(m.keys, p.k, p.keys - first, [&](int r) { return p.key_row(first + r); });
        load_tile(m.values, p.v, p.keys - first, [&](int r) { return p.key_row(first + r); });
        __syncthreads();
        multiply_scores(m.scores, m.query, m.keys);
        __syncwarp();
        const int visible = row < p.queries ? p.seen(row) - first : 0;
        const float correction = softmax_row(scores, state, half, visible, p.scale);
        round_row(m.rounded + own * kPitch, scores, out, correction, half);
        __syncwarp();
        multiply_output(m.out, m.rounded, m.values);
        __syncwarp();
    }
    __syncthreads();
    store_row(p, row, half, out, state);
}

LADDER_STEP(wmma_both_step, kRows, kThreads, sizeof(Memory))
