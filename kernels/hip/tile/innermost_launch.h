// SPDX-License-Identifier: MIT
// Host side of tile/innermost_overlapped.h: large tiles as far as they keep all compute units busy, small ones for the rest.
#pragma once

#include "tile/block_scaled_launch.h"
#include "tile/innermost_overlapped.h"

using LargeTile = TileShape<4, 4, 8>;  // 256 x 256, one workgroup per compute unit
using SmallTile = TileShape<2, 4, 4>;  // 128 x 128, two

template <class Shape, template <class> class Sums>
int launch_innermost(const BlockScaledGemm& problem, int parts, void* queue, TileRange range, int workgroups) {
    const long long tiles = static_cast<long long>(range.count) * range.pieces * range.pieces;
    return launch_product<Shape>(
        innermost_overlapped<Shape, Sums, false>, innermost_overlapped<Shape, Sums, true>, problem, parts, queue, tiles,
        workgroups, range);
}

/// Rows of c are aligned to 16 bytes. `rows`: 256 or 128, the only tiles to use, or 0: both, for `units` compute units.
template <template <class> class Sums>
int launch_innermost(const BlockScaledGemm& problem, int parts, int rows, int units, void* queue) {
    const long long tiles = count_tiles<LargeTile>(problem.m, problem.n),
                    small = count_tiles<SmallTile>(problem.m, problem.n);
    if (small > 0x7fffffff) return kUnsupportedShape;
    const int count = static_cast<int>(tiles);
    const int large = rows == LargeTile::kM ? count : rows == 0 && parts == 1 ? count / units * units : 0;
    if (large == 0)
        return launch_innermost<SmallTile, Sums>(problem, parts, queue, {0, static_cast<int>(small)}, 2 * units);
    const int status = launch_innermost<LargeTile, Sums>(problem, parts, queue, {0, large}, units);
    if (status != kOk || large == count) return status;
    static_assert(LargeTile::kM == 2 * SmallTile::kM && LargeTile::kN == 2 * SmallTile::kN);
    return launch_innermost<SmallTile, Sums>(problem, parts, queue, {large, count - large, 2}, 2 * units);
}
