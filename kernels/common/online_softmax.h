// SPDX-License-Identifier: MIT
// The scalar half of an online softmax, for one query row, on both vendors and on the host.
//
// Scores s stay unscaled; `scale` is softmax_scale * log2(e) > 0, so that exp(softmax_scale * (s - max)) is
// exp2(s * scale - shift) with shift = max * scale: one multiply-add and one exp2 per score. Each architecture passes its
// own exp2 instruction as a function object, and reduces the maximum and the sum over lanes in its own way.
//
//   correction = row.raise(tile_maximum, scale, exp2);      // then: accumulators *= correction
//   p = exp2(s * scale - row.shift(scale));  row.sum += p;  // for each score of the tile
//   o = accumulator * row.inverse();  lse = row.lse(scale);
//
// A row that has seen no key has maximum -inf and sum 0: every function below is total, none gives NaN for it.
#pragma once

#include <math.h>

#include "ceil_div.h"

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

struct SoftmaxRow {
    float maximum = -INFINITY;  // of the unscaled scores seen so far
    float sum = 0.0f;           // of exp2(s * scale - shift); may be one lane's share of it until the end

    /// What to subtract inside exp2: 0 instead of -inf while no key was seen, since -inf - -inf is NaN.
    WARPWAVE_HOST_DEVICE float shift(float scale) const { return maximum == -INFINITY ? 0.0f : maximum * scale; }

    /// Take a tile whose largest score is `tile_maximum`. Returns the factor for everything accumulated so far (0 for
    /// the first tile with a key, 1 where the maximum stays), already applied to `sum`.
    template <typename Exp2>
    WARPWAVE_HOST_DEVICE float raise(float tile_maximum, float scale, Exp2 exp2) {
        const float before = maximum;
        maximum = fmaxf(before, tile_maximum);
        const float correction = exp2(before * scale - shift(scale));
        sum *= correction;
        return correction;
    }

    /// Factor that turns accumulated exp2(...) * v into the output; 0 for a row without keys. NaN among the scores stays
    /// NaN here and below, hence no `sum > 0`: a broken row must not look like an empty one.
    WARPWAVE_HOST_DEVICE float inverse() const { return sum == 0.0f ? 0.0f : 1.0f / sum; }

    /// log(sum(exp(softmax_scale * s))), natural logarithm; -inf for a row without keys.
    WARPWAVE_HOST_DEVICE float lse(float scale) const {
        return sum == 0.0f ? -INFINITY : (maximum * scale + log2f(sum)) * kLn2;
    }
};
