// SPDX-License-Identifier: MIT
// Softmax in registers for attention from e4m3: scores in wgmma accumulators become weights that use e4m3's range.
//
// A row's weights are exp2(x - maximum + kWeightBits) times the scale of the value each meets, x = score * factor in base 2. The
// largest one then lies between 2^kWeightBits and 2^(kWeightBits + kSlackBits) < 448, the largest code: relative to it, codes are
// normal numbers down to 2^-13. `maximum` is one of the weighted x that the row has seen, so that it bounds what the product with V
// adds up; the sum for the log-sum-exp is free of values' scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <math.h>

#include "attention/fp8_shape.h"
#include "common/quad.h"
#include "online_softmax.h"
#include "ptx/convert.h"
#include "ptx/math.h"
#include "ptx/mma.h"

#ifndef SLACK_TENTHS
#error "SLACK_TENTHS is a tunable of the kernel file: tenths of a power of two by which a score may exceed the maximum"
#endif

namespace attention {

constexpr float kWeightBits = 7.0f;
constexpr float kSlackBits = SLACK_TENTHS / 10.0f;  // how far a score may exceed the maximum before that follows
static_assert(SLACK_TENTHS >= 0 && SLACK_TENTHS <= 18, "2^(7 + 1.8) is 445, the largest code 448");

/// What a thread knows of one of its two rows.
struct WeightRow {
    float maximum = -INFINITY;  // in base 2, with the scale of the values
    float sum = 0.0f;           // of exp2(x - maximum + kWeightBits): this lane's share

    /// Take a tile whose largest weighted x is `largest`. Returns the factor for what was accumulated before; 1 mostly, as the
    /// maximum follows only beyond the slack.
    __device__ __forceinline__ float raise(float largest) {
        if (!(largest > maximum + kSlackBits)) return 1.0f;
        const float correction = Exp2()(maximum - largest);  // 0 at the first key
        maximum = largest;
        sum *= correction;
        return correction;
    }
};

/// Mask scores from key `limits[row]` of the tile on.
template <int kCount>
__device__ __forceinline__ void mask_fp8_scores(float (&scores)[kCount], const int (&limits)[2], int lane) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        if (i / 4 * 8 + lane % 4 * 2 + i % 2 >= limits[i % 4 / 2]) scores[i] = -INFINITY;
    }
}

/// The largest scores of a thread's two rows.
template <int kCount>
__device__ __forceinline__ void largest_scores(const float (&scores)[kCount], float (&largest)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        largest[half] = scores[2 * half];
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
            largest[half] = fmaxf(largest[half], fmaxf(scores[i + 2 * half], scores[i + 2 * half + 1]));
        }
    }
}

/// The same where they are not negative, else anything negative: the order of numbers that are not negative is that of their bits
/// as integers, for which there is an instruction that compares three.
template <int kCount>
__device__ __forceinline__ void largest_positive_scores(const float (&scores)[kCount], float (&largest)[2]) {
    int bits[2][2] = {{-1, -1}, {-1, -1}};
#pragma unroll
    for (int i = 0; i < kCount; i += 2) {
        int& most = bits[i % 4 / 2][i / 4 % 2];
        most = max(max(most, float_bits(scores[i])), float_bits(scores[i + 1]));
    }
    largest[0] = bits_float(max(bits[0][0], bits[0][1]));
    largest[1] = bits_float(max(bits[1][0], bits[1][1]));
}

/// Turn the scores of a thread's two rows into weights. `corrections`: what everything before is to be multiplied with.
///
/// kThrees: the lanes that share a row compare their maxima only where a score of the warp exceeds its row's by more than the
/// slack, which a vote finds out; and mostly integers are compared, three at a time.
///
/// The additions stand beside the exponentials on purpose: without them, or elsewhere, the whole was 6 to 11 % slower.
template <class Shape, int kCount>
__device__ __forceinline__ void weigh_scores(
    float (&scores)[kCount], WeightRow (&rows)[2], float (&corrections)[2], const float (&factors)[2],
    const Fp8StepScales& step) {
    const float log = Shape::kBlockScales ? step.value_log : 0.0f;
    float shifts[2], largest[2];
    if constexpr (Shape::kThrees) {
        const float limits[2] = {rows[0].maximum + kSlackBits - log, rows[1].maximum + kSlackBits - log};
        // Negative scores cannot exceed a limit that is not negative. That it is none does not depend on this step's scores.
        if (!__any_sync(0xffffffffu, !(limits[0] >= 0.0f && limits[1] >= 0.0f))) {
            largest_positive_scores(scores, largest);
        } else {
            largest_scores(scores, largest);
        }
        largest[0] *= factors[0];
        largest[1] *= factors[1];
        corrections[0] = corrections[1] = 1.0f;
        // `<=` is false of NaN; before the first key it is true only of what is masked.
        if (__any_sync(0xffffffffu, !(largest[0] <= limits[0] && largest[1] <= limits[1]))) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
                corrections[half] = rows[half].raise(quad_maximum(largest[half]) + log);
        }
    } else {
        largest_scores(scores, largest);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            largest[half] = quad_maximum(largest[half]) * factors[half];
            corrections[half] = rows[half].raise(largest[half] + log);
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        // Before the first key: anything finite, as -inf - -inf would be NaN.
        shifts[half] = kWeightBits + log - (rows[half].maximum == -INFINITY ? 0.0f : rows[half].maximum);
    }
    float sums[2] = {0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        const int half = i % 4 / 2;
        scores[i] = Exp2()(fmaf(scores[i], factors[half], shifts[half]));
        (Shape::kBlockScales ? sums[half] : rows[half].sum) += scores[i];  // the quad adds up at the end
    }
    if constexpr (Shape::kBlockScales) {
#pragma unroll
        for (int half = 0; half < 2; ++half) rows[half].sum += sums[half] * step.value_inverse;
    }
}

/// Round weights to the A operands of the product with V, 32 keys each: see attention/fp8_transpose.h.
template <int kCount>
__device__ __forceinline__ void pack_weights(uint32_t (&packed)[kCount / 16][4], const float (&weights)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
        const float* const pair = weights + i / 2 * 8 + i % 2 * 2;  // and the pair eight keys further on
        packed[i / 4][i % 4] = pack_e4m3(pair[0], pair[1], pair[4], pair[5]);
    }
}

/// Multiply accumulators with what weigh_scores left: 1 for most warps in most steps.
template <int kCount>
__device__ __forceinline__ void correct_fp8_rows(float (&out)[kCount], const float (&corrections)[2]) {
    if (!__any_sync(0xffffffffu, corrections[0] != 1.0f || corrections[1] != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) out[i] *= corrections[i % 4 / 2];
}

/// After a tile's last step: write the log-sum-exp of this thread's two rows, of which the first is `query`. `factors`: what
/// the output is yet to be multiplied with. None of it needs the output, whose last product runs meanwhile.
template <class Shape>
__device__ __forceinline__ void finish_fp8_rows(
    const Fp8FlashProblem& p, const Fp8FlashTile& tile, int query, const WeightRow (&rows)[2], float (&factors)[2],
    int lane) {
    float logs[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float sum = quad_sum(rows[half].sum);
        // A broken row, of NaN, must not look like an empty one: hence no `sum > 0`.
        const float inverse = reciprocal_approximate(sum) * (Shape::kBlockScales ? 1.0f : tile.value_scale);
        factors[half] = sum == 0.0f ? 0.0f : inverse;
        logs[half] = sum == 0.0f ? -INFINITY : (rows[half].maximum - kWeightBits + log2_approximate(sum)) * kLn2;
    }
    if (lane % 4 == 0) {
        float* const to = p.lse + (static_cast<size_t>(tile.batch) * p.heads + tile.head) * p.queries + query;
        if (query < p.queries) to[0] = logs[0];
        if (query + 8 < p.queries) to[8] = logs[1];
    }
}

/// Normalise and write the two rows of which this thread holds every fourth pair of columns; the first is `query`.
template <class Shape>
__device__ __forceinline__ void store_fp8_rows(
    const Fp8FlashProblem& p, const Fp8FlashTile& tile, int query, const float (&out)[Shape::kHeadDim / 2],
    const float (&factors)[2], int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = query + 8 * half;
        const bool valid = row < p.queries;
        uint8_t* const to =
            p.o + ((static_cast<size_t>(tile.batch) * p.queries + row) * p.heads + tile.head) * (Shape::kHeadDim * 2) +
            lane % 4 * 16;
#pragma unroll
        for (int i = 0; i < Shape::kHeadDim / 32; ++i) {
            uint32_t packed[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float* const pair = out + 16 * i + 4 * j + 2 * half;
                packed[j] = Bf16::pack(pair[0] * factors[half], pair[1] * factors[half]);
            }
            transpose_quad(packed, lane);  // so that a lane writes 16 bytes in one piece
            if (valid) *reinterpret_cast<uint4*>(to + 64 * i) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
        }
    }
}

}  // namespace attention
