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

/// Store accumulators as codes, the units of a strip's half from `to` on (tile/latent_parts.h).
template <int kCount>
__device__ __forceinline__ void store_codes(const float (&out)[kCount], uint8_t* to, int lane) {
#pragma unroll
    for (int unit = 0; unit < kCount / 8; ++unit) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = Bf16::pack(out[8 * unit + 2 * i], out[8 * unit + 2 * i + 1]);
        *reinterpret_cast<uint4*>(to + unit * LatentParts::kUnitBytes + lane * 16) = make_uint4(x[0], x[1], x[2], x[3]);
    }
}
