// SPDX-License-Identifier: MIT
// The tile scheduler of the Hopper product: which tiles a block computes, in which order, and which K blocks of them.
#pragma once

#include "ptx/cluster.h"

namespace gemm {

// The order in which tiles are worked on: neighbours in time share operands in L2.

/// Tile coordinates of linear index `index`: bands of `band` row tiles, walked column by column.
__device__ __forceinline__ void tile_position(int index, int band, int tiles_m, int tiles_n, int& tile_m, int& tile_n) {
    if (tiles_m == 1 || tiles_n == 1) {  // without the divisions, for which a short kernel waits
        tile_m = tiles_m == 1 ? 0 : index;
        tile_n = tiles_m == 1 ? index : 0;
        return;
    }
    const int first = index / (band * tiles_n) * band;
    const int rows = min(band, tiles_m - first);
    const int inside = index - first * tiles_n;
    tile_m = first + inside % rows;
    tile_n = inside / rows;
}

// Which tiles a block computes, and which K blocks of them. All roles of a block walk the same list.

/// What the kernel is told besides the tensor maps.
struct WgmmaProblem {
    const float* a_scale;         // [k / 128][m]
    const float* b_scale;         // [ceil(n / 128), k / 128], strides (b_scale_row, b_scale_k)
    uint16_t* c;                  // [m][n] bf16
    int m, n, blocks;             // blocks: K blocks of 128
    int tiles_m, tiles_n;         // row tiles; column tiles, pairs of them where blocks are paired
    int band;                     // row tiles walked together (gemm/scheduler.h)
    bool boxes;                   // c may be stored by TMA
    int box_rows, box_columns;    // that TMA brings per K block: boxes are no higher than their matrix
    int tail_rows, tail_columns;  // of the last tiles, which have maps of their own; 0: they have none
    const uint8_t* weights;       // [n][k], for fetching ahead
    int fetched_blocks;           // K blocks of its first tile's weights that a block fetches ahead
    int b_scale_row, b_scale_k;
};

/// One tile, or a part of its K.
struct WorkTile {
    int row, column;  // the tile's first row and column, in the tile's orientation
    int first_block, blocks;
};

/// Walks the tiles of this block's cluster.
///
///   for (TileScheduler<Shape> walk(p); walk.more(); walk.next()) { const WorkTile work = walk.work(p); ... }
template <class Shape>
struct TileScheduler {
    int index, step, count, rank;

    __device__ __forceinline__ explicit TileScheduler(const WgmmaProblem& p)
        : index(cluster_index()), step(cluster_count()), count(p.tiles_m * p.tiles_n),
          rank(Shape::kPair == 1 && !Shape::kClusterReduce ? 0 : cluster_rank()) {}

    __device__ __forceinline__ bool more() const { return index < count; }
    __device__ __forceinline__ void next() { index += step; }

    __device__ __forceinline__ WorkTile work(const WgmmaProblem& p) const {
        int tile_m, tile_n;
        tile_position(index, p.band, p.tiles_m, p.tiles_n, tile_m, tile_n);
        WorkTile work = {tile_m * Shape::kM, tile_n * Shape::kN, 0, p.blocks};
        if constexpr (Shape::kPair == 2) work.column = (2 * tile_n + rank) * Shape::kN;
        if constexpr (Shape::kClusterReduce) {
            const int parts = cluster_blocks();
            work.first_block = p.blocks * rank / parts;
            work.blocks = p.blocks * (rank + 1) / parts - work.first_block;
        }
        return work;
    }
};

}  // namespace gemm
