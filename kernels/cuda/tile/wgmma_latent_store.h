// SPDX-License-Identifier: MIT
// How 64 rows and more leave the accumulators of MLA decode: 16 bytes per lane, since 4 or 8 take two to three times as long.
//
// An accumulator is that of ptx/wgmma_16bit.h with kColumns columns; a quad of lanes has two of its rows, `half` says which.
#pragma once

#include <cstdint>

#include "ptx/mma_16bit.h"
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

/// The same in fp32; two lanes exchange.
template <int kCount>
__device__ __forceinline__ void store_row_exact(const float (&out)[kCount], int half, float factor, float* to) {
    const int place = recomputed_thread() % 4;
    const bool odd = place % 2 != 0;
#pragma unroll
    for (int j = 0; j < kCount / 4; j += 2) {
        const int even_at = 4 * j + 2 * half, odd_at = even_at + 4;
        float got[2], own[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float x = out[even_at + i] * factor, y = out[odd_at + i] * factor;
            got[i] = __shfl_xor_sync(0xffffffffu, odd ? x : y, 1);
            own[i] = odd ? y : x;
        }
        const float4 four = odd ? make_float4(got[0], got[1], own[0], own[1])
                                : make_float4(own[0], own[1], got[0], got[1]);
        *reinterpret_cast<float4*>(to + 8 * (j + place % 2) + place / 2 * 4) = four;
    }
}
