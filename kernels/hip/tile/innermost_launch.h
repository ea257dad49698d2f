// SPDX-License-Identifier: MIT
// Host side of tile/innermost_overlapped.h: large tiles as far as they keep all compute units busy, small ones for the rest.
#pragma once

#include "tile/block_scaled_launch.h"
#include "tile/innermost_overlapped.h"

using LargeTile = TileShape<4, 4, 8>;  // 256 x 256, one workgroup per compute unit
using SmallTile = TileShape<2, 4, 4>;  // 128 x 128, two

/// The part of c that the large tiles `range` make up, in tiles of shape `Shape`.
template <class Shape, template <class> class Sums>
int launch_innermost(const BlockScaledGemm& problem, int parts, void* queue, TileRange range, int workgroups) {
    if (range.count == 0) return kOk;
    const long long pieces = (LargeTile::kM / Shape::kM) * (LargeTile::kN / Shape::kN);
    return launch_product<Shape>(
        innermost_overlapped<Shape, LargeTile, Sums, false>, innermost_overlapped<Shape, LargeTile, Sums, true>,
        problem, parts, queue, range.count * pieces, workgroups, range);
}

/// Rows of c are aligned to 16 bytes. `rows`: 256 or 128, the only tiles to use, or 0: both, for `units` compute units.
template <template <class> class Sums>
int launch_innermost(const BlockScaledGemm& problem, int parts, int rows, int units, void* queue) {
    const long long tiles = count_tiles<LargeTile>(problem.m, problem.n);
    if (tiles > 0x7fffffff) return kUnsupportedShape;
    const int count = static_cast<int>(tiles);
    const int large = rows == LargeTile::kM ? count : rows == 0 && parts == 1 ? count / units * units : 0;
    const int status = launch_innermost<LargeTile, Sums>(problem, parts, queue, {0, large}, units);
    if (status != kOk) return status;
    return launch_innermost<SmallTile, Sums>(problem, parts, queue, {large, count - large}, 2 * units);
}
