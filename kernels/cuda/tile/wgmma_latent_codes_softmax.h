// SPDX-License-Identifier: MIT
// What coded tokens change in the softmax of MLA decode (tile/wgmma_latent_codes.h).
//
// A token was divided by its unit, a power of two, and a query row by another one. Scores take both back. A token's weight, what
// its tile is multiplied by, is its probability times its unit: exponents, and their maxima, are those of weights, so that the tokens
// which matter to the output are those that fp16 holds best. Sums are of probabilities.
#pragma once

#include "fp8.h"
#include "online_softmax.h"
#include "ptx/exp2.h"

/// Units of tokens 8 j + 2 (lane % 4) and the next, and their logarithms: those of a thread's accumulators 4 j to 4 j + 3.
__device__ __forceinline__ float4 units_of(const float2* units, int j, int lane) {
    return *reinterpret_cast<const float4*>(units + 8 * j + lane % 4 * 2);
}

/// Scores of two rows to the exponents of weights; a row's factor has the softmax scale, too.
template <int kCount>
__device__ __forceinline__ void weigh_coded_scores(
    float (&scores)[kCount], const float (&factors)[2], const float2* units, int lane) {
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
        const float4 unit = units_of(units, j, lane);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float& left = scores[4 * j + 2 * half];
            float& right = scores[4 * j + 2 * half + 1];
            left = left * factors[half] * unit.x + unit.y;
            right = right * factors[half] * unit.z + unit.w;
        }
    }
}

/// Weights in place of their exponents.
template <class Shape, int kCount>
__device__ __forceinline__ void coded_weights(
    float (&scores)[kCount], SoftmaxRow (&rows)[2], const float2* units, int lane) {
    const float shifts[2] = {rows[0].shift(1.0f) - Shape::kRaised, rows[1].shift(1.0f) - Shape::kRaised};
    float sums[2][2] = {};
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j) {
        const float4 unit = units_of(units, j, lane);
        const float inverses[2] = {
            float_from_bits((254u << 23) - bits_from_float(unit.x)), float_from_bits((254u << 23) - bits_from_float(unit.z))};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float& score = scores[4 * j + i];
            score = Exp2()(score - shifts[i / 2]);
            sums[i / 2][i % 2] += score * inverses[i % 2];
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) rows[half].sum += sums[half][0] + sums[half][1];
}
