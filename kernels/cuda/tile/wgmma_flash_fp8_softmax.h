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

#include "online_softmax.h"
#include "ptx/exp2.h"
#include "ptx/float_bits.h"
#include "ptx/mma_16bit.h"
#include "ptx/pack_fp8.h"
#include "tile/quad.h"
#include "tile/wgmma_flash_fp8_shape.h"

#if !defined(SLACK_TENTHS)
#define SLACK_TENTHS 18   // a tunable of the kernel file
#endif

constexpr float kWeightBits = 7.0f;
constexpr float kSlackBits = SLACK_TENTHS / 10.0f;   // how far a score may exceed the maximum before that follows
static_assert(SLACK_TENTHS >= 0 && SLACK_TENTHS <= 18, "2^(7 + 1.8) is 445, the largest code 448");

/// What a thread knows of one of its two rows.
struct WeightRow {
    float maximum = -INFINITY;   // in base 2, with the scale of the values
    float sum = 0.0f;            // of exp2(x - maximum + kWeightBits): this lane's share

    /// Take a tile whose largest weighted x is `largest`. Returns the factor for what was accumulated before; 1 mostly, as the
    /// maximum follows only beyond the slack.
    __device__ __forceinline__ float raise(float largest) {
        if (!(largest > maximum + kSlackBits)) return 1.0f;
        const float correction = Exp2()(maximum - largest);   // 0 at the first key
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

/// The largest of a thread's scores kBegin .. kEnd - 1 in its two rows; multiples of 4.
template <int kBegin, int kEnd, int kCount>
__device__ __forceinline__ void largest_of(const float (&scores)[kCount], float (&largest)[2]) {
    float most[2][2];   // two chains per row: an instruction every other cycle, each four cycles after what it depends on
#pragma unroll
    for (int i = kBegin; i < kEnd; ++i) {
        float& m = most[i % 4 / 2][i % 2];
        m = i < kBegin + 4 ? scores[i] : fmaxf(m, scores[i]);
    }
    largest[0] = fmaxf(most[0][0], most[0][1]);
    largest[1] = fmaxf(most[1][0], most[1][1]);
}

/// The largest scores of a thread's two rows.
///
/// kThreeAtOnce: the order of numbers that are not negative is that of their bits as integers, for which there is an instruction
/// that compares three. A row without such a number is rare and compared once more, behind a branch.
template <bool kThreeAtOnce, int kCount>
__device__ __forceinline__ void largest_scores(const float (&scores)[kCount], float (&largest)[2]) {
    if constexpr (kThreeAtOnce) {
        int bits[2][2] = {{-1, -1}, {-1, -1}};   // those of negative numbers, which all say nothing
#pragma unroll
        for (int i = 0; i < kCount; i += 2) {
            int& most = bits[i % 4 / 2][i / 4 % 2];
            most = max(max(most, float_bits(scores[i])), float_bits(scores[i + 1]));
        }
        bits[0][0] = max(bits[0][0], bits[0][1]);
        bits[1][0] = max(bits[1][0], bits[1][1]);
        largest[0] = bits_float(bits[0][0]);
        largest[1] = bits_float(bits[1][0]);
        if (min(bits[0][0], bits[1][0]) >= 0) return;
    }
    largest_of<0, kCount>(scores, largest);
}

/// Turn the scores of a thread's two rows into weights. `corrections`: what everything before is to be multiplied with.
template <bool kBlockScales, bool kThreeAtOnce, int kCount>
__device__ __forceinline__ void weigh_scores(
    float (&scores)[kCount], WeightRow (&rows)[2], float (&corrections)[2], const float (&factors)[2],
    const Fp8StepScales& step) {
    float shifts[2], largest[2];
    largest_scores<kThreeAtOnce>(scores, largest);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        largest[half] = quad_maximum(largest[half]) * factors[half];
        corrections[half] = rows[half].raise(kBlockScales ? largest[half] + step.value_log : largest[half]);
        // Before the first key: anything finite, as -inf - -inf would be NaN.
        const float maximum = rows[half].maximum == -INFINITY ? 0.0f : rows[half].maximum;
        shifts[half] = kWeightBits - maximum + (kBlockScales ? step.value_log : 0.0f);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) scores[i] = Exp2()(fmaf(scores[i], factors[i % 4 / 2], shifts[i % 4 / 2]));
}

/// Take weights into the sums. `value_inverse` is 1 / the scale of the values that is in them.
///
/// Not beside the exponentials, but in a basic block of its own: there the compiler makes each addition wait for the exponential
/// two before it, so that a warp has hardly any in flight, and takes 20 cycles for each instead of 8.
template <int kCount>
__device__ __forceinline__ void add_weights(const float (&weights)[kCount], WeightRow (&rows)[2], float value_inverse) {
    float sums[2][2] = {};
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i % 4 / 2][i % 2] += weights[i];
#pragma unroll
    for (int half = 0; half < 2; ++half) rows[half].sum = fmaf(sums[half][0] + sums[half][1], value_inverse, rows[half].sum);
}

/// Halves of a thread's scores of a step, or of one half: lower keys first.
template <int kCount>
__device__ __forceinline__ float (&first_half(float (&scores)[kCount]))[kCount / 2] {
    return reinterpret_cast<float (&)[kCount / 2]>(scores[0]);
}
template <int kCount>
__device__ __forceinline__ float (&second_half(float (&scores)[kCount]))[kCount / 2] {
    return reinterpret_cast<float (&)[kCount / 2]>(scores[kCount / 2]);
}

/// weigh_scores in two halves, so that the second one's maxima are looked for beside the first one's exponentials. Lanes that share
/// a row compare their maxima only where one of the warp's scores exceeds its row's by more than the slack.
template <class Shape>
struct Fp8Softmax {
    WeightRow (&rows)[2];
    float (&corrections)[2];
    const float (&factors)[2];
    const Fp8StepScales& step;

    static constexpr int kAll = Shape::kKeys / 2, kHalf = kAll / 2, kQuarter = kAll / 16 * 4;

    /// All at once.
    __device__ __forceinline__ void whole(float (&scores)[kAll]) const {
        corrections[0] = corrections[1] = 1.0f;
        raise<0, kAll>(scores);
        exponentiate<0, kAll>(scores);
    }
    __device__ __forceinline__ void first(float (&scores)[kAll]) const {
        corrections[0] = corrections[1] = 1.0f;
        raise<0, kHalf>(scores);
        exponentiate<0, kQuarter>(scores);
    }
    __device__ __forceinline__ void second(float (&scores)[kAll]) const {
        float largest[2];
        largest_of<kHalf, kAll>(scores, largest);
        exponentiate<kQuarter, kHalf>(scores);
        raise<kHalf>(scores, largest);
        exponentiate<kHalf, kAll>(scores);
    }

  private:
    template <int kBegin, int kEnd>
    __device__ __forceinline__ void raise(float (&scores)[kAll]) const {
        float largest[2];
        largest_of<kBegin, kEnd>(scores, largest);
        raise<kBegin>(scores, largest);
    }
    /// Raise the rows' maxima to what was found; the weights before kBegin follow.
    template <int kBegin>
    __device__ __forceinline__ void raise(float (&scores)[kAll], const float (&largest)[2]) const {
        const float log = Shape::kBlockScales ? step.value_log : 0.0f;
        const float found[2] = {fmaf(largest[0], factors[0], log), fmaf(largest[1], factors[1], log)};
        // False of NaN; before the first key true only of what is masked.
        const bool within = found[0] <= rows[0].maximum + kSlackBits && found[1] <= rows[1].maximum + kSlackBits;
        if (!__any_sync(0xffffffffu, !within)) return;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float factor = rows[half].raise(quad_maximum(found[half]));
            corrections[half] *= factor;
#pragma unroll
            for (int i = 2 * half; i < kBegin; i += 4) {
                scores[i] *= factor;
                scores[i + 1] *= factor;
            }
        }
    }

    template <int kBegin, int kEnd>
    __device__ __forceinline__ void exponentiate(float (&scores)[kAll]) const {
        const float log = kWeightBits + (Shape::kBlockScales ? step.value_log : 0.0f);
        // Before the first key: anything finite, as -inf - -inf would be NaN.
        const float shifts[2] = {log - (rows[0].maximum == -INFINITY ? 0.0f : rows[0].maximum),
                                 log - (rows[1].maximum == -INFINITY ? 0.0f : rows[1].maximum)};
#pragma unroll
        for (int i = kBegin; i < kEnd; ++i) scores[i] = Exp2()(fmaf(scores[i], factors[i % 4 / 2], shifts[i % 4 / 2]));
    }
};

/// Round weights to the A operands of the product with V, 32 keys each: see tile/wgmma_flash_fp8_transpose.h.
template <int kCount>
__device__ __forceinline__ void pack_weights(uint32_t (&packed)[kCount / 16][4], const float (&weights)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
        const float* const pair = weights + i / 2 * 8 + i % 2 * 2;   // and the pair eight keys further on
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

/// Normalise and write the two rows of which this thread holds every fourth pair of columns; the first is `query`.
template <class Shape>
__device__ __forceinline__ void store_fp8_rows(
    const Fp8FlashProblem& p, const Fp8FlashTile& tile, int query, float (&out)[Shape::kHeadDim / 2],
    const WeightRow (&rows)[2], int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float sum = quad_sum(rows[half].sum);
        // A broken row, of NaN, must not look like an empty one: hence no `sum > 0`.
        const float inverse = sum == 0.0f ? 0.0f : (Shape::kBlockScales ? 1.0f : tile.value_scale) / sum;
        const int row = query + 8 * half;
        const bool valid = row < p.queries;
        if (valid && lane % 4 == 0) {
            p.lse[(static_cast<size_t>(tile.batch) * p.heads + tile.head) * p.queries + row] =
                sum == 0.0f ? -INFINITY : (rows[half].maximum - kWeightBits + log2f(sum)) * kLn2;
        }
        uint8_t* const to =
            p.o + ((static_cast<size_t>(tile.batch) * p.queries + row) * p.heads + tile.head) * (Shape::kHeadDim * 2) +
            lane % 4 * 16;
#pragma unroll
        for (int i = 0; i < Shape::kHeadDim / 32; ++i) {
            uint32_t packed[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float* const pair = out + 16 * i + 4 * j + 2 * half;
                packed[j] = Bf16::pack(pair[0] * inverse, pair[1] * inverse);
            }
            transpose_quad(packed, lane);   // so that a lane writes 16 bytes in one piece
            if (valid) *reinterpret_cast<uint4*>(to + 64 * i) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
        }
    }
}
