// SPDX-License-Identifier: MIT
//!KERNEL summary as 3, tiles brought by 16-byte loads
//!KERNEL arch gfx942
//!KERNEL step 4 16-byte loads
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 14-25us@MI300
//
// An eighth of the load and store instructions.
#include "mfma_output.h"

template <class Half>
__global__ void __launch_bounds__(kThreads) wide_loads_step(Step p) {
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
        WideTile loaded;
        loaded.load(p, first);
        loaded.store(keys, values);
        __syncthreads();
        multiply_scores<Half>(m.scores, q, keys);
        attend<Half>(m, out, values, state, row < p.queries ? p.seen(row) - first : 0, p.scale);
    }
    __syncthreads();
    store_rows<Half>(p, m, out, state, tile);
}

LADDER_STEP(wide_loads_step, kThreads)
