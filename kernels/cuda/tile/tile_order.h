// SPDX-License-Identifier: MIT
// The order in which tiles are worked on: neighbours in time share operands in L2.
#pragma once

/// Tile coordinates of linear index `index`: bands of `band` row tiles, walked column by column.
__device__ __forceinline__ void tile_position(
    int index, int band, int tiles_m, int tiles_n, int& tile_m, int& tile_n) {
    if (tiles_m == 1 || tiles_n == 1) {   // without the divisions, for which a short kernel waits
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
