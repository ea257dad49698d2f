// SPDX-License-Identifier: MIT
// How 64 rows and more leave the accumulators of MLA decode: 16 bytes per lane, since 4 or 8 take two to three times as long.
//
// An accumulator is that of ptx/wgmma_16bit.h with kColumns columns; a quad of lanes has two of its rows, `half` says which.
#pragma once

#include <cstdint>

#include "ptx/mma_16bit.h"
#include "tile/latent_parts.h"
#include "tile/quad.h"
#include "tile/wide_rows.h"

/// Store one row of this quad of lanes from `to` on, times `factor`, rounded to bf16: 64 bytes at a time. A quad's lanes exchange
/// accumulators so that each has eight neighbouring columns.
template <int kCount>
__device__ __forceinline__ void store_row_rounded(const float (&out)[kCount], int half, float factor, uint8_t* to) {
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
        *reinterpret_cast<uint4*>(to + (8 * (j + place)) * 2) = make_uint4(x[0], x[1], x[2], x[3]);
    }
}

/// The largest of a row's columns in this quad, in magnitude, for LatentParts::kMostCode.
template <int kCount>
__device__ __forceinline__ float code_range(const float (&out)[kCount], int half) {
    float largest[2] = {};
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
        float& most = largest[i % 2];
        most = fmaxf(most, fabsf(out[4 * i + 2 * half]));
        most = fmaxf(most, fabsf(out[4 * i + 2 * half + 1]));
    }
    const float most = quad_maximum(fmaxf(largest[0], largest[1]));
    return fminf(fmaxf(most, LatentParts::kLeastRange), LatentParts::kMostRange);
}

/// Store accumulators times the factors of their rows as fp16, the units of a strip's half from `to` on (tile/latent_parts.h).
template <int kCount>
__device__ __forceinline__ void store_codes(const float (&out)[kCount], const float (&factor)[2], uint8_t* to, int lane) {
#pragma unroll
    for (int unit = 0; unit < kCount / 8; ++unit) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at = 8 * unit + 2 * i;
            x[i] = Fp16::pack(out[at] * factor[i % 2], out[at + 1] * factor[i % 2]);
        }
        *reinterpret_cast<uint4*>(to + unit * LatentParts::kUnitBytes + lane * 16) = make_uint4(x[0], x[1], x[2], x[3]);
    }
}
