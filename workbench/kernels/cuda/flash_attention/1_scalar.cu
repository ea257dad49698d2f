// SPDX-License-Identifier: MIT
//!KERNEL summary a thread per query row, online softmax, no tensor cores
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 1 a thread per query row
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 2122us@L4
//
// Keys and values come through shared memory as floats, 16 at a time; a thread keeps its query and its output in registers.
#include "step.h"

constexpr int kRows = 64, kTileKeys = 16;

template <class T>
__global__ void __launch_bounds__(kRows) scalar_step(const Step<T> p) {
    __shared__ float keys[kTileKeys][kHeadDim], values[kTileKeys][kHeadDim];
    const int row = blockIdx.x * kRows + threadIdx.x;
    const bool valid = row < p.queries;
    float query[kHeadDim], out[kHeadDim];
#pragma unroll
    for (int c = 0; c < kHeadDim; ++c) {
        query[c] = valid ? to_float(p.q[p.query_row(row) + c]) : 0.0f;
        out[c] = 0.0f;
    }
    SoftmaxRow state;
    const int seen = valid ? p.seen(row) : 0, end = p.seen_by_tile(blockIdx.x * kRows, kRows);
    for (int first = 0; first < end; first += kTileKeys) {
        for (int i = threadIdx.x; i < kTileKeys * kHeadDim; i += kRows) {
            const int j = first + i / kHeadDim;
            const bool inside = j < p.keys;
            keys[i / kHeadDim][i % kHeadDim] = inside ? to_float(p.k[p.key_row(j) + i % kHeadDim]) : 0.0f;
            values[i / kHeadDim][i % kHeadDim] = inside ? to_float(p.v[p.key_row(j) + i % kHeadDim]) : 0.0f;
        }
        __syncthreads();
        float scores[kTileKeys], largest = -INFINITY;
#pragma unroll
        for (int j = 0; j < kTileKeys; ++j) {
            float sum = 0.0f;
#pragma unroll
            for (int c = 0; c < kHeadDim; ++c) sum += query[c] * keys[j][c];
            scores[j] = first + j < seen ? sum : -INFINITY;
            largest = fmaxf(largest, scores[j]);
        }
        const float correction = state.raise(largest, p.scale, Exp2()), shift = state.shift(p.scale);
#pragma unroll
        for (int c = 0; c < kHeadDim; ++c) out[c] *= correction;
#pragma unroll
        for (int j = 0; j < kTileKeys; ++j) {
            const float probability = Exp2()(scores[j] * p.scale - shift);
            state.sum += probability;
#pragma unroll
            for (int c = 0; c < kHeadDim; ++c) out[c] += probability * values[j][c];
        }
        __syncthreads();
    }
    if (!valid) return;
#pragma unroll
    for (int c = 0; c < kHeadDim; ++c) p.o[p.query_row(row) + c] = rounded<T>(out[c] * state.inverse());
    p.store_lse(row, state);
}

LADDER_STEP(scalar_step, kRows, kRows, 0)
