// SPDX-License-Identifier: MIT
//!KERNEL summary both products by MFMA, copies element by element
//!KERNEL arch gfx942
//!KERNEL step 3 P V by MFMA
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 22-40us@MI300
//
// As 2, but P is rounded to 16 bits and multiplied with V by MFMA. AMD documents which lane holds what, so the output can stay in
// registers; the factor of a row comes through LDS.
#include "mfma_output.h"

template <class Half>
__global__ void __launch_bounds__(kThreads) mfma_both_step(Step p) {
    __shared__ alignas(16) uint16_t keys[kKeys * kPitch];
    __shared__ alignas(16) uint16_t values[kKeys * kPitch];
    __shared__ Scratch m;
    const int tile = static_cast<int>(blockIdx.x) * kRows, row = tile + static_cast<int>(threadIdx.x) / 4;
    u32x2 q[kHeadDim / 16];
    load_queries(q, p, tile + wave_id() * 16);
    f32x4 out[kOutTiles] = {};
    SoftmaxRow state;
    const int end = p.seen_by_tile(tile);
    for (int first = 0; first < end; first += kKeys) {
        __syncthreads();
        load_tile(keys, p.k, p, first);
        load_tile(values, p.v, p, first);
        __syncthreads();
        multiply_scores<Half>(m.scores, q, keys);
        attend<Half>(m, out, values, state, row < p.queries ? p.seen(row) - first : 0, p.scale);
    }
    __syncthreads();
    store_rows<Half>(p, m, out, state, tile);
}

LADDER_STEP(mfma_both_step, kThreads)
