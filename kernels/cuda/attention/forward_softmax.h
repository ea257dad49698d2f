// SPDX-License-Identifier: MIT
// What a consumer thread of the Hopper attention forward does with accumulators: mask, softmax, correction, store.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/forward_scheduler.h"
#include "common/attention_mma.h"
#include "online_softmax.h"
#include "ptx/math.h"
#include "ptx/thread.h"

namespace attention {

/// Mask scores from key `limits[row]` of the tile on.
template <int kCount>
__device__ __forceinline__ void mask_scores(float (&scores)[kCount], const int (&limits)[2], int lane) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        if (limits[i % 4 / 2] - lane % 4 * 2 <= i / 4 * 8 + i % 2) scores[i] = -INFINITY;
    }
}

/// The online softmax of a thread's two rows that watches sums instead of maxima. scores: one step's, kAll of them, which become
/// probabilities.
///
/// Beside products every instruction of a step's softmax takes part in its length, and a maximum per score is one in five.
/// So a row keeps the maximum of its first step with a key. What exceeds it shows in the row's sum, which is needed anyway:
/// up to 2^kSlack sums and probabilities just grow, which costs no precision. Beyond, the rows of the warp are mended.
template <int kSlack, int kAll>
struct LazyRescaleSoftmax {
    static constexpr float kLimit = 1u << kSlack;  // of a lane's share of a sum
    static constexpr float kLost = 0x1p100f;       // near the end of fp32: what lies beyond may be infinite

    int fresh = 1;    // whether some row of the warp has not seen a key; no bool, which takes a register
    float before[2];  // sums before this step

    /// The largest that this thread has.
    static __device__ __forceinline__ void look(const float (&scores)[kAll], float (&largest)[2]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            largest[half] = scores[2 * half];
#pragma unroll
            for (int i = 0; i < kAll; i += 4) {
                largest[half] = fmaxf(largest[half], fmaxf(scores[i + 2 * half], scores[i + 2 * half + 1]));
            }
        }
    }

    /// Before a step's exponentials: rows that have no maximum get one.
    __device__ __forceinline__ void begin(const float (&scores)[kAll], SoftmaxRow (&rows)[2]) {
        if (fresh != 0) {
            float largest[2];
            look(scores, largest);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float maximum = quad_maximum(largest[half]);
                if (rows[half].maximum == -INFINITY) rows[half].maximum = maximum;
            }
            fresh = __any_sync(0xffffffffu, rows[0].maximum == -INFINITY || rows[1].maximum == -INFINITY);
        }
        before[0] = rows[0].sum;
        before[1] = rows[1].sum;
    }

    /// For a step whose scores cannot be put back: raise maxima that some score exceeds by so much that it might be lost. Whether
    /// that was so; then `factors` are what everything before is to be multiplied with. Same for all lanes of a warp.
    __device__ __forceinline__ bool raise(
        const float (&scores)[kAll], SoftmaxRow (&rows)[2], float (&factors)[2], float scale) {
        constexpr float kMost = 64.0f;
        float largest[2];
        look(scores, largest);
        // NaN before a row's first key.
        const bool far =
            (largest[0] - rows[0].maximum) * scale > kMost || (largest[1] - rows[1].maximum) * scale > kMost;
        if (!__any_sync(0xffffffffu, far)) return false;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            factors[half] = rows[half].raise(quad_maximum(largest[half]), scale, Exp2());
        before[0] = rows[0].sum;
        before[1] = rows[1].sum;
        return true;
    }

    /// Scores kBegin to kEnd, multiples of 4.
    template <int kBegin, int kEnd>
    static __device__ __forceinline__ void exponentiate(float (&scores)[kAll], SoftmaxRow (&rows)[2], float scale) {
        const float shifts[2] = {rows[0].shift(scale), rows[1].shift(scale)};
#pragma unroll
        for (int i = kBegin; i < kEnd; ++i) {
            scores[i] = Exp2()(scores[i] * scale - shifts[i % 4 / 2]);
            rows[i % 4 / 2].sum += scores[i];  // this lane's share: the quad adds up at the end
        }
    }

    /// After them: whether mend() is due. Same for all lanes of a warp. NaN is.
    static __device__ __forceinline__ bool exceeds(const SoftmaxRow (&rows)[2]) {
        return __any_sync(0xffffffffu, !(rows[0].sum <= kLimit && rows[1].sum <= kLimit));
    }

    /// Raise maxima, and scale the step's probabilities or, where they may be lost, put its scores back by again() and begin
    /// anew; only if that is `possible`. `factors` are what everything before is to be multiplied with.
    template <class Again>
    __device__ __forceinline__ void mend(
        float (&scores)[kAll], SoftmaxRow (&rows)[2], float (&factors)[2], float scale, bool possible,
        const Again& again) const {
        compute_now(rows[0].maximum);  // what was computed of maxima for the step is not worth a register until here
        compute_now(rows[1].maximum);
        if (possible && __any_sync(0xffffffffu, !(rows[0].sum < kLost && rows[1].sum < kLost))) {
            again();
            float largest[2];
            look(scores, largest);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                rows[half].sum = before[half];
                factors[half] = rows[half].raise(quad_maximum(largest[half]), scale, Exp2());
            }
            exponentiate<0, kAll>(scores, rows, scale);
        } else {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float most = quad_maximum(rows[half].sum);  // becomes about 1
                const float raised =
                    rows[half].maximum + log2_approximate(fmaxf(most, 1.0f)) * reciprocal_approximate(scale);
                factors[half] = most <= kLimit ? 1.0f : rows[half].raise(raised, scale, Exp2());
            }
#pragma unroll
            for (int i = 0; i < kAll; ++i) scores[i] *= factors[i % 4 / 2];
        }
    }
};

/// After a tile's last step: the log-sum-exp of this thread's two rows, and what the output is yet to be multiplied with.
__device__ __forceinline__ void end_rows(SoftmaxRow (&rows)[2], float (&factors)[2], float (&logs)[2], float scale) {
    // As SoftmaxRow::inverse and ::lse, with approximations: a sum is 0 (no key), NaN, or about 1 or more, since it
    // counts the score that set the maximum. The shift is rounded as it was in the exponents.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float sum = rows[half].sum = quad_sum(rows[half].sum);
        factors[half] = sum == 0.0f ? 0.0f : reciprocal_approximate(sum);
        logs[half] = sum == 0.0f ? -INFINITY : (rows[half].shift(scale) + log2_approximate(sum)) * kLn2;
    }
}

/// Write the log-sum-exp of this thread's two rows, of which the first is `query`; `factors` as above.
__device__ __forceinline__ void finish_rows(
    const FlashProblem& p, const FlashTile& tile, int query, SoftmaxRow (&rows)[2], float (&factors)[2], int lane) {
    float logs[2];
    end_rows(rows, factors, logs, p.scale);
    if (lane % 4 == 0) {
        float* const to = p.lse + (static_cast<size_t>(tile.batch) * p.heads + tile.head) * p.queries + query;
        if (query < p.queries) to[0] = logs[0];
        if (query + 8 < p.queries) to[8] = logs[1];
    }
}

/// Normalise and write one of the two rows of which this thread holds every fourth pair of columns.
template <class Shape>
__device__ __forceinline__ void store_row(
    uint8_t* row, bool valid, const float (&out)[Shape::kHeadDim / 2], float factor, int half, int lane) {
    uint8_t* const to = row + lane % 4 * 16;
#pragma unroll
    for (int i = 0; i < Shape::kHeadDim / 32; ++i) {
        uint32_t packed[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float* const pair = out + 16 * i + 4 * j + 2 * half;
            packed[j] = Shape::Element::pack(pair[0] * factor, pair[1] * factor);
        }
        transpose_quad(packed, lane);  // so that a lane writes 16 bytes in one piece
        if (valid) *reinterpret_cast<uint4*>(to + 64 * i) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
    }
}

/// Normalise and write this thread's two rows, of which the first is `query`.
template <class Shape>
__device__ __forceinline__ void store_rows(
    const FlashProblem& p, const FlashTile& tile, int query, const float (&out)[Shape::kHeadDim / 2],
    const float (&factors)[2], int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = query + 8 * half;
        const size_t position = (static_cast<size_t>(tile.batch) * p.queries + row) * p.heads + tile.head;
        store_row<Shape>(p.o + position * (Shape::kHeadDim * 2), row < p.queries, out, factors[half], half, lane);
    }
}

}  // namespace attention
