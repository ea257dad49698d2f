// SPDX-License-Identifier: MIT
// One query row against one tile of up to 64 keys, with an online softmax.
//
// Keys arrive transposed and padded, [d][64], values as [64][dv] with dv a multiple of 64; slots beyond `visible` are
// never used, whatever they hold. A row starts as SoftmaxRow() with a zeroed accumulator and `scale` is
// softmax_scale · log2(e); after the last tile the output is the accumulator times row.inverse().
#pragma once

#include <cmath>

#include "online_softmax.h"
#include "tile/axpy.h"

constexpr int KEY_TILE = 64;

inline void attend(
    const float* q, int d, const float* keys, const float* values, int dv, int visible, float scale, SoftmaxRow& row,
    float* acc) {
    if (visible <= 0) return;
    const auto exp2 = [](float x) { return std::exp2(x); };
    float score[KEY_TILE] = {};
    for (int c = 0; c < d; ++c) axpy<KEY_TILE>(score, q[c], keys + static_cast<long>(c) * KEY_TILE);
    float top = score[0];
    for (int j = 1; j < visible; ++j) top = std::fmax(top, score[j]);
    const float correction = row.raise(top, scale, exp2);
    for (int c = 0; c < dv; ++c) acc[c] *= correction;
    for (int j = 0; j < visible; ++j) {
        const float p = exp2(score[j] * scale - row.shift(scale));
        row.sum += p;
        for (int c = 0; c < dv; c += 64) axpy<64>(acc + c, p, values + static_cast<long>(j) * dv + c);
    }
}
