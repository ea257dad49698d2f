// SPDX-License-Identifier: MIT
// What a consumer thread of the Hopper attention forward does with accumulators: mask, softmax, correction, store.
#pragma once

#include <cstddef>
#include <cstdint>

#include "online_softmax.h"
#include "ptx/exp2.h"
#include "ptx/special.h"
#include "tile/attention_mma.h"
#include "tile/wgmma_flash_walk.h"

/// Mask scores from key `limits[row]` of the tile on.
template <int kCount>
__device__ __forceinline__ void mask_scores(float (&scores)[kCount], const int (&limits)[2], int lane) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        if (limits[i % 4 / 2] - lane % 4 * 2 <= i / 4 * 8 + i % 2) scores[i] = -INFINITY;
    }
}

/// SoftmaxRow::raise, but the maximum stays as it is while no score exceeds it by more than kSlack in the exponent: sums
/// and probabilities then grow up to 2^kSlack, which costs no precision, and most steps need no correction.
template <int kSlack>
__device__ __forceinline__ float raise_lazily(SoftmaxRow& row, float tile_maximum, float scale) {
    const float excess = (tile_maximum - row.maximum) * scale;   // infinite at the first key, NaN before it
    if (excess <= static_cast<float>(kSlack)) return 1.0f;
    return row.raise(tile_maximum, scale, Exp2());
}

/// Of a thread's scores those from kBegin on, kCount of them, in its two rows: a step's or half of one's. Both are multiples
/// of 4.
template <int kBegin, int kCount>
struct SoftmaxPart {
    static constexpr int kEnd = kBegin + kCount;

    /// The largest that this thread has.
    template <int kAll>
    static __device__ __forceinline__ void look(const float (&scores)[kAll], float (&largest)[2]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            largest[half] = scores[kBegin + 2 * half];
#pragma unroll
            for (int i = kBegin; i < kEnd; i += 4) {
                largest[half] = fmaxf(largest[half], fmaxf(scores[i + 2 * half], scores[i + 2 * half + 1]));
            }
        }
    }

    /// Raise the rows' maxima and correct what this step has already, but only where some score of the warp exceeds its row's
    /// maximum by more than kSlack; elsewhere the lanes that share a row need not compare.
    template <int kSlack, int kAll>
    static __device__ __forceinline__ void raise(
        float (&scores)[kAll], SoftmaxRow (&rows)[2], const float (&largest)[2], float (&corrections)[2], float scale) {
        // Infinite at the first key, NaN before it.
        const bool within = (largest[0] - rows[0].maximum) * scale <= static_cast<float>(kSlack) &&
                            (largest[1] - rows[1].maximum) * scale <= static_cast<float>(kSlack);
        if (!__any_sync(0xffffffffu, !within)) return;
        const float factors[2] = {raise_lazily<kSlack>(rows[0], quad_maximum(largest[0]), scale),
                                  raise_lazily<kSlack>(rows[1], quad_maximum(largest[1]), scale)};
        corrections[0] *= factors[0];
        corrections[1] *= factors[1];
#pragma unroll
        for (int i = 0; i < kBegin; ++i) scores[i] *= factors[i % 4 / 2];
    }

    template <int kAll>
    static __device__ __forceinline__ void exponentiate(float (&scores)[kAll], SoftmaxRow (&rows)[2], float scale) {
        const float shifts[2] = {rows[0].shift(scale), rows[1].shift(scale)};
#pragma unroll
        for (int i = kBegin; i < kEnd; ++i) {
            scores[i] = Exp2()(scores[i] * scale - shifts[i % 4 / 2]);
            rows[i % 4 / 2].sum += scores[i];   // this lane's share: the quad adds up at the end
        }
    }
};

/// The online softmax of a thread's two rows: scores become probabilities, `corrections` what everything before is to be
/// multiplied with. With kHalves the second half's maxima are looked for beside the first half's exponentials.
template <int kSlack, bool kHalves, int kAll>
__device__ __forceinline__ void softmax_scores(
    float (&scores)[kAll], SoftmaxRow (&rows)[2], float (&corrections)[2], float scale) {
    float largest[2];
    if constexpr (kHalves) {
        constexpr int kFirst = kAll / 8 * 4;
        using First = SoftmaxPart<0, kFirst>;
        using Second = SoftmaxPart<kFirst, kAll - kFirst>;
        corrections[0] = corrections[1] = 1.0f;
        First::look(scores, largest);
        First::template raise<kSlack>(scores, rows, largest, corrections, scale);
        Second::look(scores, largest);
        First::exponentiate(scores, rows, scale);
        Second::template raise<kSlack>(scores, rows, largest, corrections, scale);
        Second::exponentiate(scores, rows, scale);
    } else {
        using Whole = SoftmaxPart<0, kAll>;
        Whole::look(scores, largest);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            largest[half] = quad_maximum(largest[half]);
            corrections[half] = kSlack > 0 ? raise_lazily<kSlack>(rows[half], largest[half], scale)
                                           : rows[half].raise(largest[half], scale, Exp2());
        }
        Whole::exponentiate(scores, rows, scale);
    }
}

/// One of a thread's two rows, in steps without a branch, so that the compiler can have one row's beside the other's.
template <int kRow, int kAll>
struct SoftmaxOfRow {
    static __device__ __forceinline__ float look(const float (&scores)[kAll]) {
        float largest = fmaxf(scores[2 * kRow], scores[2 * kRow + 1]);
#pragma unroll
        for (int i = 4; i < kAll; i += 4) largest = fmaxf(largest, fmaxf(scores[i + 2 * kRow], scores[i + 2 * kRow + 1]));
        return largest;
    }

    /// The same in an order that the compiler cannot change: after `other` is known, one score after the other.
    static __device__ __forceinline__ float look_after(const float (&scores)[kAll], float other) {
        float largest = fmaf(other, 0.0f, -INFINITY);   // -inf, or NaN, which fmaxf ignores
#pragma unroll
        for (int i = 0; i < kAll; i += 4) largest = fmaxf(fmaxf(largest, scores[i + 2 * kRow]), scores[i + 2 * kRow + 1]);
        return largest;
    }

    /// raise_lazily by selection.
    template <int kSlack>
    static __device__ __forceinline__ float raise(SoftmaxRow& row, float step_maximum, float scale) {
        const float before = row.maximum;
        const bool keep = (step_maximum - before) * scale <= static_cast<float>(kSlack);   // not at the first key
        row.maximum = keep ? before : fmaxf(before, step_maximum);
        const float factor = keep ? 1.0f : Exp2()(before * scale - row.shift(scale));
        row.sum *= factor;
        return factor;
    }

    static __device__ __forceinline__ void exponentiate(float (&scores)[kAll], SoftmaxRow& row, float scale) {
        const float shift = row.shift(scale);
#pragma unroll
        for (int i = 0; i < kAll; i += 4) {
#pragma unroll
            for (int j = i + 2 * kRow; j < i + 2 * kRow + 2; ++j) {
                scores[j] = Exp2()(scores[j] * scale - shift);
                row.sum += scores[j];   // this lane's share
            }
        }
    }
};

/// softmax_scores a row at a time; `between` is called before the second row's exponentials.
template <int kSlack, int kAll, class Between>
__device__ __forceinline__ void softmax_by_rows(
    float (&scores)[kAll], SoftmaxRow (&rows)[2], float (&corrections)[2], float scale, const Between& between) {
    using First = SoftmaxOfRow<0, kAll>;
    using Second = SoftmaxOfRow<1, kAll>;
    const float first_largest = quad_maximum(First::look(scores));
    corrections[0] = First::template raise<kSlack>(rows[0], first_largest, scale);
    const float largest = Second::look_after(scores, first_largest);
    First::exponentiate(scores, rows[0], scale);
    between();
    corrections[1] = Second::template raise<kSlack>(rows[1], quad_maximum(largest), scale);
    Second::exponentiate(scores, rows[1], scale);
}

/// The online softmax that does not look for maxima: a row's maximum is that of its first step with a key, and what exceeds it
/// shows in the sum, which is looked at when the step is done. Up to kLimit nothing needs to be done about it; beyond,
/// everything is scaled down, and if even fp32 overflowed the step's scores are computed again.
template <int kSlack, int kAll>
struct TrustingSoftmax {
    using Whole = SoftmaxPart<0, kAll>;
    static constexpr int kHalf = kAll / 8 * 4;

    bool fresh = true;   // some row of the warp has not seen a key
    float before[2];     // sums before this step

    /// Before a step's exponentials.
    __device__ __forceinline__ void begin(const float (&scores)[kAll], SoftmaxRow (&rows)[2]) {
        if (fresh) {
            float largest[2];
            Whole::look(scores, largest);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float most = quad_maximum(largest[half]);
                if (rows[half].maximum == -INFINITY) rows[half].maximum = most;
            }
            fresh = __any_sync(0xffffffffu, rows[0].maximum == -INFINITY || rows[1].maximum == -INFINITY);
        }
        before[0] = rows[0].sum;
        before[1] = rows[1].sum;
    }

    /// After them: whether sums are so large that mend() is due. Same for all lanes of a warp.
    __device__ __forceinline__ bool exceeds(const SoftmaxRow (&rows)[2], float limit) const {
        return __any_sync(0xffffffffu, !(rows[0].sum <= limit && rows[1].sum <= limit));
    }

    /// Raise maxima and scale this step's probabilities; `factors` are for everything before. again() puts the step's
    /// scores back.
    template <class Again>
    __device__ __forceinline__ void mend(
        float (&scores)[kAll], SoftmaxRow (&rows)[2], float (&factors)[2], float scale, float limit, const Again& again) const {
        constexpr float kLost = 0x1p100f;   // near what fp32 holds: the factor would vanish
        if (__any_sync(0xffffffffu, !(rows[0].sum < kLost && rows[1].sum < kLost))) {
            again();
            float largest[2];
            Whole::look(scores, largest);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                rows[half].sum = before[half];
                factors[half] = rows[half].raise(quad_maximum(largest[half]), scale, Exp2());
            }
            Whole::exponentiate(scores, rows, scale);
        } else {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float most = quad_maximum(rows[half].sum);
                const float raised = rows[half].maximum + log2_approximate(fmaxf(most, 1.0f)) * reciprocal_approximate(scale);
                factors[half] = most <= limit ? 1.0f : rows[half].raise(raised, scale, Exp2());
            }
#pragma unroll
            for (int i = 0; i < kAll; ++i) scores[i] *= factors[i % 4 / 2];
        }
    }
};

/// Multiply accumulators with what softmax_scores left; with slack that is 1 for most warps in most steps.
template <int kSlack, int kCount>
__device__ __forceinline__ void correct_rows(float (&out)[kCount], const float (&corrections)[2]) {
    if (kSlack > 0 && !__any_sync(0xffffffffu, corrections[0] != 1.0f || corrections[1] != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < kCount; ++i) out[i] *= corrections[i % 4 / 2];
}

/// After a tile's last step: write the log-sum-exp of this thread's two rows, of which the first is `query`. `factors` are what
/// the output is yet to be multiplied with.
__device__ __forceinline__ void finish_rows(
    const FlashProblem& p, const FlashTile& tile, int query, SoftmaxRow (&rows)[2], float (&factors)[2], int lane) {
    // As SoftmaxRow::inverse and ::lse, with approximations: a sum counts the score that set the maximum as 1, so it is 0 (no
    // key) or at least 1 (or NaN).
    float logs[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const float sum = rows[half].sum = quad_sum(rows[half].sum);
        factors[half] = sum == 0.0f ? 0.0f : reciprocal_approximate(sum);
        logs[half] = sum == 0.0f ? -INFINITY : (rows[half].maximum * p.scale + log2_approximate(sum)) * kLn2;
    }
    if (lane % 4 == 0) {
        float* const to = p.lse + (static_cast<size_t>(tile.batch) * p.heads + tile.head) * p.queries + query;
        if (query < p.queries) to[0] = logs[0];
        if (query + 8 < p.queries) to[8] = logs[1];
    }
}

/// Normalise and write the two rows of which this thread holds every fourth pair of columns; the first is `query`.
template <class Shape>
__device__ __forceinline__ void store_rows(
    const FlashProblem& p, const FlashTile& tile, int query, const float (&out)[Shape::kHeadDim / 2],
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
                packed[j] = Shape::Element::pack(pair[0] * factors[half], pair[1] * factors[half]);
            }
            transpose_quad(packed, lane);   // so that a lane writes 16 bytes in one piece
            if (valid) *reinterpret_cast<uint4*>(to + 64 * i) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
        }
    }
}
