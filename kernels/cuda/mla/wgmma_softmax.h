// SPDX-License-Identifier: MIT
// MLA decode on wgmma: the softmax of a page's scores, and how output rows leave the accumulators.
#pragma once

#include <cstdint>

#include "common/quad.h"
#include "common/wide_rows.h"
#include "mla/wgmma_shape.h"
#include "mla/workspace.h"
#include "online_softmax.h"
#include "ptx/convert.h"
#include "ptx/math.h"
#include "ptx/mma.h"

namespace mla {

// The softmax of a page's scores in MLA decode on wgmma: a thread's share of two rows, as accumulators lie (ptx/wgmma.h).
//
//   to_exponents(scores, rows, scale);
//   if (exceeds(scores, rows)) raise(scores, rows, factor);   // then: what was accumulated before *= factor
//   exponentials(scores, rows, p);
//
// A row's reference, which SoftmaxRow calls its maximum, is a score times the scale; P = 2^(score * scale - reference). It lies 2^8
// above the largest score it was made for and stays until one exceeds it: P from 2^-8 to 1 is as precise in bf16, accumulators
// are rarely rescaled, and the signs of exponents say whether they must be.

/// Scores become exponents: of 2, relative to the rows' references.
template <int kCount>
__device__ __forceinline__ void to_exponents(float (&scores)[kCount], const SoftmaxRow (&rows)[2], float scale) {
    const float shift[2] = {rows[0].shift(1.0f), rows[1].shift(1.0f)};
#pragma unroll
    for (int i = 0; i < kCount; ++i) scores[i] = scores[i] * scale - shift[i / 2 % 2];
}

/// Whether a row of this warp needs a higher reference: an exponent is not negative, or there is no reference yet.
template <int kCount>
__device__ __forceinline__ bool exceeds(const float (&exponents)[kCount], const SoftmaxRow (&rows)[2]) {
    int signs = -1;
#pragma unroll
    for (int i = 0; i < kCount; ++i) signs &= float_bits(exponents[i]);
    return __any_sync(0xffffffffu, (signs >= 0) | (rows[0].maximum == -INFINITY) | (rows[1].maximum == -INFINITY));
}

/// Raise the references of rows that need it, so that exponents are at most - kReferenceSlack; returns the factors for what
/// was accumulated before.
template <int kCount>
__device__ __forceinline__ void raise(float (&exponents)[kCount], SoftmaxRow (&rows)[2], float (&factor)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float largest = -INFINITY;
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) largest = fmaxf(largest, exponents[i / 2 * 4 + 2 * half + i % 2]);
        largest = quad_maximum(largest);
        const bool first = rows[half].maximum == -INFINITY;
        // A row that sees no token has none.
        const float up = largest == -INFINITY || (largest < 0.0f && !first) ? 0.0f : largest + kReferenceSlack;
        factor[half] = first ? 1.0f : Exp2()(-up);
        if (largest != -INFINITY) rows[half].maximum = rows[half].shift(1.0f) + up;
        rows[half].sum *= factor[half];
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) exponents[i / 2 * 4 + 2 * half + i % 2] -= up;
    }
}

/// The probabilities of a tile as A operands of 16 tokens each; adds them to the rows' sums.
template <int kCount>
__device__ __forceinline__ void exponentials(
    const float (&exponents)[kCount], SoftmaxRow (&rows)[2], uint32_t (&p)[kCount / 8][4]) {
    float sums[2][2] = {};
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
        const float first = Exp2()(exponents[2 * i]), second = Exp2()(exponents[2 * i + 1]);
        sums[i % 2][0] += first;
        sums[i % 2][1] += second;
        p[i / 4][i % 4] = Bf16::pack(first, second);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) rows[half].sum += sums[half][0] + sums[half][1];
}

// How 64 rows and more leave the accumulators of MLA decode: 16 bytes per lane, since 4 or 8 take two to three times as long.
//
// An accumulator is that of ptx/wgmma.h with kColumns columns; a quad of lanes has two of its rows, `half` says which.

/// Store one row of this quad of lanes from `to` on, times `factor`, rounded to bf16: 64 bytes at a time, by `store`(address, 16
/// bytes). A quad's lanes exchange accumulators so that each has eight neighbouring columns.
template <int kCount, class Store>
__device__ __forceinline__ void store_row_rounded(
    const float (&out)[kCount], int half, float factor, uint8_t* to, const Store& store) {
    const int place = recomputed_thread() % 4;
#pragma unroll
    for (int j = 0; j < kCount / 4; j += 4) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at = 4 * (j + i) + 2 * half;
            x[i] = Bf16::pack(out[at] * factor, out[at + 1] * factor);
        }
        transpose_quad(x, place);
        store(to + (8 * (j + place)) * 2, make_uint4(x[0], x[1], x[2], x[3]));
    }
}

/// Store accumulators as codes, the units of a strip's half from `to` on (mla/workspace.h).
template <int kCount>
__device__ __forceinline__ void store_codes(const float (&out)[kCount], uint8_t* to, int lane) {
#pragma unroll
    for (int unit = 0; unit < kCount / 8; ++unit) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = Bf16::pack(out[8 * unit + 2 * i], out[8 * unit + 2 * i + 1]);
        *reinterpret_cast<uint4*>(to + unit * LatentSplits::kUnitBytes + lane * 16) =
            make_uint4(x[0], x[1], x[2], x[3]);
    }
}

}  // namespace mla
