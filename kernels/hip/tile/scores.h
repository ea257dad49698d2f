// SPDX-License-Identifier: MIT
// Scores of 16 queries against `Tiles` * 16 keys as one wave holds them, transposed (keys are MFMA rows, queries columns),
// and one step of the online softmax on them.
//
// With r = lane % 16 and g = lane / 16, score[t][i] belongs to query r and key scored_key(t, i). The four lanes that share r
// share a query; probabilities are packed in exactly the operand layout that p v wants, so they never leave their lane.
#pragma once

#include "isa/lanes.h"
#include "isa/math.h"
#include "isa/types.h"
#include "online_softmax.h"

/// Key, counted from the tile's first one, of score[t][i] in this lane (the results of paired_row).
__device__ __forceinline__ int scored_key(int t, int i) { return (t >> 1) * 32 + lane_id() / 16 * 8 + (t & 1) * 4 + i; }

struct Exp2 {
    __device__ __forceinline__ float operator()(float x) const { return exp2_approx(x); }
};

/// Largest value among the four lanes of a query.
__device__ __forceinline__ float query_maximum(float value) {
    value = fmaxf(value, from_lane_xor_16(value));
    return fmaxf(value, from_lane_xor_32(value));
}

/// Sum over the four lanes of a query.
__device__ __forceinline__ float query_sum(float value) {
    value += from_lane_xor_16(value);
    return value + from_lane_xor_32(value);
}

/// Keys from `visible` (counted from the tile's first one, any sign) on get -inf.
template <int Tiles>
__device__ __forceinline__ void mask_scores(f32x4 (&score)[Tiles], int visible) {
#pragma unroll
    for (int t = 0; t < Tiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) score[t][i] = scored_key(t, i) < visible ? score[t][i] : -INFINITY;
}

/// This lane's largest score.
template <int Tiles>
__device__ __forceinline__ float largest_score(const f32x4 (&score)[Tiles]) {
    float maximum = score[0][0];
#pragma unroll
    for (int t = 0; t < Tiles; ++t)
#pragma unroll
        for (int i = 0; i < 4; ++i) maximum = fmaxf(maximum, score[t][i]);
    return maximum;
}

/// Whether `row` must be raised for scores up to `maximum`. What is subtracted from a score may lag behind the largest one by
/// 2^kLag: so most tiles neither compare lanes nor rescale.
__device__ __forceinline__ bool lags(const SoftmaxRow& row, float maximum, float scale) {
    constexpr float kLag = 4.0f;
    return maximum * scale > row.maximum * scale + kLag;
}

/// Turn scores into probabilities, packed as operands, and add them to the sum of `row`, which stays this lane's share.
/// Probabilities are cut to 16 bits, not rounded; they are larger before by what a cut takes away on average, which the sum
/// does not keep.
template <class Half, int Tiles>
__device__ __forceinline__ void add_scores(
    const f32x4 (&score)[Tiles], SoftmaxRow& row, float scale, u32x2 (&probability)[Tiles]) {
    const float shift = row.shift(scale) - Half::kCutLog2;
    f32x4 sum = {};
#pragma unroll
    for (int t = 0; t < Tiles; ++t) {
        const f32x4 power = score[t] * scale - shift;
        const f32x4 p = {exp2_approx(power[0]), exp2_approx(power[1]), exp2_approx(power[2]), exp2_approx(power[3])};
        sum += p;
        probability[t] = u32x2{Half::cut(p[0], p[1]), Half::cut(p[2], p[3])};
    }
    row.sum += ((sum[0] + sum[1]) + (sum[2] + sum[3])) * Half::kCut;
}

/// Take the scores into `row` and turn them into probabilities. Returns the factor for what was accumulated before.
template <class Half, int Tiles>
__device__ __forceinline__ float take_scores(
    const f32x4 (&score)[Tiles], SoftmaxRow& row, float scale, u32x2 (&probability)[Tiles]) {
    const float maximum = largest_score(score);
    float correction = 1.0f;
    if (any_lane(lags(row, maximum, scale))) correction = row.raise(query_maximum(maximum), scale, Exp2{});
    add_scores<Half>(score, row, scale, probability);
    return correction;
}

/// accumulator *= correction; skipped when no lane needs it, as for most tiles once the maxima have settled.
template <int Count>
__device__ __forceinline__ void rescale(f32x4 (&accumulator)[Count], float correction) {
    if (!any_lane(correction != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < Count; ++i) accumulator[i] *= correction;
}
