// SPDX-License-Identifier: MIT
// Rows of the Hopper product that lie K-outermost in memory: they stay so in shared memory and reach wgmma in registers.
//
// wgmma reads 8-bit operands from shared memory with K contiguous only, but A may come from registers, and there ldmatrix and
// byte permutes can put it: as in tile/fp8_k_outermost.h, ldmatrix.trans brings byte pairs of two k, and two permutes make
// registers of four k. What that leaves crooked costs nothing:
//   rows   fragment row g of a warp's 16 is row 2g, and g + 8 is 2g + 1: scales are read and sums stored accordingly. Where
//          rows are weights that even helps: a lane's two rows are neighbours in a row of c
//   K      slot 4t + j of 16 is k = 2t + j % 2 + 8 * (j / 2): the columns must lie in the same order, which the
//          transposition that makes them K-major sees to (tile/transpose_bytes.h)
#pragma once

#include <cstdint>

#include "ptx/ldmatrix.h"
#include "ptx/permute_bytes.h"
#include "ptx/tma.h"
#include "tile/tensor_map.h"

/// `Base` (a WgmmaShape) with rows that lie K-outermost, [k][rows]. The number of rows is a multiple of 16.
///
/// A stage holds boxes of 128 k by 128 rows: 128 bytes per k, in TMA's 128-byte swizzle.
template <class Base>
struct RowsOutermost : Base {
    static constexpr bool kRowsOutermost = true;
    static_assert(Base::kM % 128 == 0, "boxes are 128 rows wide");
};

constexpr int kOutermostBoxRows = 128;

/// Host side: the map of the rows, whose boxes are a block's share of 128 k.
template <class Shape>
int encode_outermost_rows(TensorMap* map, const Matrix& rows) {
    return encode_tensor_map(map, {rows.start, rows.columns, rows.rows, 1}, Shape::kK / Shape::kPair, kOutermostBoxRows);
}

/// Load the K block from k on of the tile's rows. Paired blocks load half of the k each for both.
template <class Shape>
__device__ __forceinline__ void load_outermost_rows(
    uint32_t tile, const TensorMap& rows, uint32_t full, int k, int row, int rank) {
#pragma unroll
    for (int box = 0; box < Shape::kM / kOutermostBoxRows; ++box) {
        const uint32_t to = tile + box * (Shape::kK * kOutermostBoxRows);
        const int x = row + box * kOutermostBoxRows;
        if constexpr (Shape::kPair == 2) {
            const int half = rank * (Shape::kK / 2);
            tma_load_multicast(to + half * kOutermostBoxRows, rows, full, x, k + half, 3);
        } else {
            tma_load(to, rows, full, x, k);
        }
    }
}

/// One warp's 16 rows of a slice of 64 by 128 k, as wgmma's A.
struct OutermostFragments {
    uint32_t k32[4][4];

    __device__ __forceinline__ void load(uint32_t tile, int slice, int warp, int lane) {
        constexpr int kBoxBytes = 128 * kOutermostBoxRows;
        const int chunk = slice % 2 * 4 + warp;   // of 16 rows, in the box
        const uint32_t from = tile + slice / 2 * kBoxBytes + lane * kOutermostBoxRows + ((chunk ^ lane % 8) << 4);
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            uint32_t pairs[4];
            ldmatrix_x4_trans(pairs, from + step * 32 * kOutermostBoxRows);
            k32[step][0] = permute_bytes<0x6420>(pairs[0], pairs[1]);
            k32[step][1] = permute_bytes<0x7531>(pairs[0], pairs[1]);
            k32[step][2] = permute_bytes<0x6420>(pairs[2], pairs[3]);
            k32[step][3] = permute_bytes<0x7531>(pairs[2], pairs[3]);
        }
    }
};
