// SPDX-License-Identifier: MIT
// The softmax and the output of the wgmma steps: a thread holds two rows, every fourth pair of columns of each.
#pragma once

#include "common/attention_mma.h"
#include "ptx/wgmma.h"
#include "step.h"

/// One step of the online softmax on a warpgroup's accumulators; `limits` are the keys of the tile that each row sees.
/// Afterwards `packed` is the A operand of P V, and out has been corrected.
template <class T, int kKeys>
__device__ __forceinline__ void softmax_step(
    float (&scores)[kKeys / 2], uint32_t (&packed)[kKeys / 16][4], float (&out)[kHeadDim / 2], SoftmaxRow (&rows)[2],
    const int (&limits)[2], int lane, float scale) {
    float corrections[2], shifts[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float largest = -INFINITY;
#pragma unroll
        for (int i = 0; i < kKeys / 2; i += 4) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                float& score = scores[i + 2 * half + j];
                if (i * 2 + lane % 4 * 2 + j >= limits[half]) score = -INFINITY;
                largest = fmaxf(largest, score);
            }
        }
        corrections[half] = rows[half].raise(quad_maximum(largest), scale, Exp2());
        shifts[half] = rows[half].shift(scale);
    }
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
        scores[i] = Exp2()(scores[i] * scale - shifts[i % 4 / 2]);
        rows[i % 4 / 2].sum += scores[i];
    }
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) packed[i / 4][i % 4] = Element<T>::pack(scores[2 * i], scores[2 * i + 1]);
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) out[i] *= corrections[i % 4 / 2];
}

/// scores = Q K^T for 64 query rows; both operands as TMA's 128-byte swizzle leaves them.
template <class T, int kKeys>
__device__ __forceinline__ void issue_scores(float (&scores)[kKeys / 2], uint32_t query, uint32_t keys) {
    const uint64_t a = wgmma_operand(query), b = wgmma_operand(keys);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < kHeadDim / 16; ++c) Wgmma16<kKeys, Element<T>>::product(scores, a + 2 * c, b + 2 * c, c > 0);
    wgmma_commit();
}

/// out += P V.
template <class T, int kKeys>
__device__ __forceinline__ void issue_output(
    float (&out)[kHeadDim / 2], const uint32_t (&packed)[kKeys / 16][4], uint32_t values) {
    const uint64_t b = wgmma_operand_transposed(values, kKeys * 128);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
        Wgmma16<kHeadDim, Element<T>, true>::product(out, packed[i], b + 128 * i, true);
    }
    wgmma_commit();
}

/// Write a thread's two rows, `first` and eight further on.
template <class T>
__device__ __forceinline__ void store_rows(
    const Step<T>& p, int first, const float (&out)[kHeadDim / 2], SoftmaxRow (&rows)[2], int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        rows[half].sum = quad_sum(rows[half].sum);
        const int row = first + 8 * half;
        if (row >= p.queries) continue;
        const float inverse = rows[half].inverse();
        auto* const to = reinterpret_cast<uint32_t*>(p.o + p.query_row(row));
#pragma unroll
        for (int i = 0; i < kHeadDim / 8; ++i) {
            const float* const pair = out + 4 * i + 2 * half;
            to[4 * i + lane % 4] = Element<T>::pack(pair[0] * inverse, pair[1] * inverse);
        }
        if (lane % 4 == 0) p.store_lse(row, rows[half]);
    }
}
