// SPDX-License-Identifier: MIT
// The two products of attention on mma.sync fragments of one warp: scores = Q K^T and out += P V.
//
// A warp owns kRowTiles x 16 query rows. Accumulators are [row tile][8-column tile][4]: elements 0, 1 belong to row g of
// the row tile, 2, 3 to row g + 8, columns 2t and 2t + 1 (g = lane / 4, t = lane % 4). `Rows` is how the key or value tile lies in
// shared memory, e.g. WideRows. Each B fragment is loaded once and used for all row tiles, which is what makes 32
// rows per warp cheaper in shared-memory traffic than 16.
#pragma once

#include <cstdint>

#include "common/quad.h"
#include "ptx/ldst.h"

/// Round two neighbouring score accumulators (16 keys) to the A fragment of the product with V.
template <typename Element>
__device__ __forceinline__ void pack_probabilities(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
    a[0] = Element::pack(left[0], left[1]);
    a[1] = Element::pack(left[2], left[3]);
    a[2] = Element::pack(right[0], right[1]);
    a[3] = Element::pack(right[2], right[3]);
}

/// scores += Q K^T over the 16 columns of Q and K that start at byte `column` of a row (a constant). `keys` are this
/// lane's `lane_offset_by_columns` addresses of the key tile, `query` the A fragments of these columns.
template <typename Element, typename Rows, int kRowTiles, int kKeyTiles>
__device__ __forceinline__ void multiply_keys(
    float (&scores)[kRowTiles][kKeyTiles][4], const uint32_t (&query)[kRowTiles][4], const typename Rows::Lane& keys,
    int column) {
    static_assert(kKeyTiles % 2 == 0, "ldmatrix.x4 brings the fragments of 16 keys");
#pragma unroll
    for (int pair = 0; pair < kKeyTiles / 2; ++pair) {
        uint32_t b[4];
        ldmatrix_x4(b, keys.at(column) + pair * 16 * Rows::kPitch);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
            Element::mma_m16n8k16(scores[r][2 * pair], query[r], b[0], b[1]);
            Element::mma_m16n8k16(scores[r][2 * pair + 1], query[r], b[2], b[3]);
        }
    }
}

/// out += P V over the 16 keys that start at row `key` of the value tile (a constant), for 8 * kOutTiles columns. `values`
/// are this lane's `lane_offset_by_rows` addresses at row 0 and the first of these columns (a multiple of 64), `p` the A
/// fragments of these keys.
template <typename Element, typename Rows, int kRowTiles, int kOutTiles>
__device__ __forceinline__ void multiply_values(
    float (&out)[kRowTiles][kOutTiles][4], const uint32_t (&p)[kRowTiles][4], const typename Rows::Lane& values,
    int key) {
    static_assert(kOutTiles % 2 == 0, "ldmatrix.x4 brings the fragments of 16 columns");
#pragma unroll
    for (int pair = 0; pair < kOutTiles / 2; ++pair) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, values.at(pair * 32) + key * Rows::kPitch);
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
            Element::mma_m16n8k16(out[r][2 * pair], p[r], b[0], b[1]);
            Element::mma_m16n8k16(out[r][2 * pair + 1], p[r], b[2], b[3]);
        }
    }
}
