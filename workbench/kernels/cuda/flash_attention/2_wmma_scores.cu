// SPDX-License-Identifier: MIT
//!KERNEL summary Q K^T by WMMA, softmax and P V in scalar code
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 2 Q K^T by WMMA
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 400-600us@L4
//
// 64 x 64 tiles, four warps. Scores go through shared memory, since WMMA does not say which thread holds what. Two threads
// own a row: each takes half the exponentials and half the output columns.
#include "wmma_tile.h"

struct Memory {
    __nv_bfloat16 query[kRows * kPitch], keys[kTileKeys * kPitch], values[kTileKeys * kPitch];
    float scores[kRows * kWidePitch];
};

__global__ void __launch_bounds__(kThreads) wmma_scores_step(const Step p) {
    extern __shared__ __align__(128) unsigned char raw[];
    Memory& m = *reinterpret_cast<Memory*>(raw);
    const int tile = blockIdx.x * kRows, own = threadIdx.x / 2, half = threadIdx.x % 2, row = tile + own;
    const bool valid = row < p.queries;
    load_tile(m.query, p.q, p.queries - tile, [&](int r) { return p.query_row(tile + r); });
    float out[kHeadDim / 2] = {};
    SoftmaxRow state;
    const int end = p.seen_by_tile(tile, kRows);
    for (int first = 0; first < end; first += kTileKeys) {
        __syncthreads();
        load_tile(m.keys, p.k, p.keys - first, [&](int r) { return p.key_row(first + r); });
        load_tile(m.values, p.v, p.keys - first, [&](int r) { return p.key_row(first + r); });
        __syncthreads();
        multiply_scores(m.scores, m.query, m.keys);
        __syncwarp();  // a warp's rows are its own
        float* const scores = m.scores + own * kWidePitch;
        const float correction = softmax_row(scores, state, half, valid ? p.seen(row) - first : 0, p.scale);
        __syncwarp();
#pragma unroll
        for (int c = 0; c < kHeadDim / 2; ++c) out[c] *= correction;
        for (int j = 0; j < kTileKeys; ++j) {
#pragma unroll
            for (int c = 0; c < kHeadDim / 2; ++c) {
                out[c] += scores[j] * __bfloat162float(m.values[j * kPitch + half * (kHeadDim / 2) + c]);
            }
        }
    }
    state.sum += __shfl_xor_sync(0xffffffffu, state.sum, 1);
    if (!valid) return;
#pragma unroll
    for (int c = 0; c < kHeadDim / 2; ++c) {
        p.o[p.query_row(row) + half * (kHeadDim / 2) + c] = __float2bfloat16(out[c] * state.inverse());
    }
    if (half == 0) p.store_lse(row, state);
}

LADDER_STEP(wmma_scores_step, kRows, kThreads, sizeof(Memory))
