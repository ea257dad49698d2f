// SPDX-License-Identifier: MIT
//!KERNEL summary as 4, the next tile is loaded while this one is multiplied
//!KERNEL arch gfx942
//!KERNEL step 5 two buffers
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 11-20us@MI300
//
// The next tile is under way to registers during the products, and goes to the other buffer after them.
#include "mfma_output.h"

template <class Half>
__global__ void __launch_bounds__(kThreads) two_buffers_step(Step p) {
    __shared__ alignas(16) uint16_t keys[2][kKeys * kPitch];
    __shared__ alignas(16) uint16_t values[2][kKeys * kPitch];
    __shared__ Scratch m;
    const int tile = static_cast<int>(blockIdx.x) * kRows, row = tile + static_cast<int>(threadIdx.x) / 4;
    u32x2 q[kHeadDim / 16];
    load_queries(q, p, tile + wave_id() * 16);
    f32x4 out[kOutTiles] = {};
    SoftmaxRow state;
    WideTile loaded;
    const int end = p.seen_by_tile(tile);
    if (end > 0) {
        loaded.load(p, 0);
        loaded.store(keys[0], values[0]);
    }
    __syncthreads();
    for (int first = 0, buffer = 0; first < end; first += kKeys, buffer ^= 1) {
        const bool more = first + kKeys < end;
        if (more) loaded.load(p, first + kKeys);
        multiply_scores<Half>(m.scores, q, keys[buffer]);
        attend<Half>(m, out, values[buffer], state, row < p.queries ? p.seen(row) - first : 0, p.scale);
        if (more) loaded.store(keys[buffer ^ 1], values[buffer ^ 1]);
        __syncthreads();
    }
    store_rows<Half>(p, m, out, state, tile);
}

LADDER_STEP(two_buffers_step, kThreads)
