// SPDX-License-Identifier: MIT
//!KERNEL summary as 5, scores, probabilities and output in registers
//!KERNEL arch gfx942
//!KERNEL step 6 P and O in registers
//!KERNEL expect batch=1,sq=512,sk=512,hq=8,hk=8,dim=64,causal=0,half=* 6-12us@MI300
//
// Both products are transposed: S^T = K Q^T makes queries the columns, so that a lane's scores belong to one query, and what a lane
// holds of P^T is the operand that O^T = V^T P^T takes from it. Nothing but K and V goes through LDS, and a row's factor is where
// its sums are.
#include "mfma_tile.h"

template <class Half>
__global__ void __launch_bounds__(kThreads) registers_step(Step p) {
    constexpr int kKeyTiles = kKeys / 16, kOutTiles = kHeadDim / 16;
    __shared__ alignas(16) uint16_t keys[2][kKeys * kPitch];
    __shared__ alignas(16) uint16_t values[2][kKeys * kPitch];
    const int tile = static_cast<int>(blockIdx.x) * kRows, row = tile + wave_id() * 16 + row_of_lane();
    u32x2 q[kHeadDim / 16];
    load_queries(q, p, tile + wave_id() * 16);
    f32x4 out[kOutTiles] = {};
    SoftmaxRow state;
    WideTile loaded;
    const int seen = row < p.queries ? p.seen(row) : 0, end = p.seen_by_tile(tile);
    if (end > 0) {
        loaded.load(p, 0);
        loaded.store(keys[0], values[0]);
    }
    __syncthreads();
    for (int first = 0, buffer = 0; first < end; first += kKeys, buffer ^= 1) {
        const bool more = first + kKeys < end;
        if (more) loaded.load(p, first + kKeys);
        f32x4 scores[kKeyTiles] = {};  // element i: key 16 t + 4 g + i
        float largest = -INFINITY;
#pragma unroll
        for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
            for (int c = 0; c < kHeadDim / 16; ++c) {
                const uint16_t* const key =
                    keys[buffer] + (t * 16 + row_of_lane()) * kPitch + 16 * c + 4 * group_of_lane();
                scores[t] = Half::multiply(*reinterpret_cast<const u32x2*>(key), q[c], scores[t]);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (first + 16 * t + 4 * group_of_lane() + i >= seen) scores[t][i] = -INFINITY;
                largest = fmaxf(largest, scores[t][i]);
            }
        }
        const float correction = state.raise(query_maximum(largest), p.scale, Exp2()), shift = state.shift(p.scale);
        u32x2 probabilities[kKeyTiles];
#pragma unroll
        for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                scores[t][i] = Exp2()(scores[t][i] * p.scale - shift);
                state.sum += scores[t][i];
            }
            probabilities[t] = u32x2{Half::pack(scores[t][0], scores[t][1]), Half::pack(scores[t][2], scores[t][3])};
        }
#pragma unroll
        for (int n = 0; n < kOutTiles; ++n) {
            out[n] *= correction;
#pragma unroll
            for (int t = 0; t < kKeyTiles; ++t) {
                const u32x2 column = value_column(values[buffer], 16 * t + 4 * group_of_lane(), n * 16 + row_of_lane());
                out[n] = Half::multiply(column, probabilities[t], out[n]);
            }
        }
        if (more) loaded.store(keys[buffer ^ 1], values[buffer ^ 1]);
        __syncthreads();
    }
    state.sum = query_sum(state.sum);
    if (row >= p.queries) return;
    const float inverse = state.inverse();
#pragma unroll
    for (int n = 0; n < kOutTiles; ++n) {
        *reinterpret_cast<u32x2*>(p.o + p.query_row(row) + n * 16 + 4 * group_of_lane()) = u32x2{
            Half::pack(out[n][0] * inverse, out[n][1] * inverse), Half::pack(out[n][2] * inverse, out[n][3] * inverse)};
    }
    if (group_of_lane() == 0) p.store_lse(row, state);
}

LADDER_STEP(registers_step, kThreads)
