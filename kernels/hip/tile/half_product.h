// SPDX-License-Identifier: MIT
// y = x w^T or x w for 16-bit matrices, several of them at equal distances, K in parts where there are few tiles.
#pragma once

#include "ceil_div.h"
#include "launch.h"
#include "tile/half_gemm.h"
#include "tile/split_k.h"

/// y[i] = x[i] w[i]^T, or x[i] w[i] with `outermost`; i < count. Pitches and steps in elements, multiples of 8; k of 64; n of 8.
struct HalfProduct {
    const uint16_t* x;  // [m, k]
    const uint16_t* w;  // [n, k], or [k, n]
    uint16_t* y;        // [m, n]
    int m, n, k;
    int x_pitch, w_pitch, y_pitch;
    int count = 1;
    int x_step = 0, w_step = 0, y_step = 0;
    float* planes =
        nullptr;  // [parts][plane_elements(m, n)], of one product whose K is in parts; its rows of y are n apart
};

/// The grid: tiles, then products or parts of K (`blocks_per_part` K blocks each).
template <class Half, bool Outermost, bool Split>
__global__ void __launch_bounds__(kHalfThreads, 2) half_product(HalfProduct p, int blocks_per_part) {
    __shared__ HalfLds lds;
    const int tiles_n = (p.n + kHalfColumns - 1) / kHalfColumns;
    const int tile_m = uniform(static_cast<int>(blockIdx.x) / tiles_n);
    const int first_row = tile_m * kHalfRows;
    const int first_column = (static_cast<int>(blockIdx.x) - tile_m * tiles_n) * kHalfColumns;
    const int rows = p.m - first_row < kHalfRows ? p.m - first_row : kHalfRows;
    const int slice = static_cast<int>(blockIdx.y), at = Split ? 0 : slice;
    const int all = p.k / kHalfBlockK, begin = Split ? slice * blocks_per_part : 0;
    const int end = Split && begin + blocks_per_part < all ? begin + blocks_per_part : all;

    const int x_bytes = p.x_pitch * 2;
    const uint16_t* const x = p.x + static_cast<size_t>(at) * static_cast<size_t>(p.x_step) +
                              static_cast<size_t>(first_row) * static_cast<size_t>(p.x_pitch);
    const RowsA a(
        make_buffer(x, (rows - 1) * x_bytes + p.k * 2), [&](int row) { return row < rows ? row * x_bytes : kOutside; });
    const uint16_t* const w = p.w + static_cast<size_t>(at) * static_cast<size_t>(p.w_step);
    HalfTile<Half> wave;
    if constexpr (Outermost) {
        wave.run(lds, a, OutermostB(w, first_column, p.n, p.w_pitch), begin, end);
    } else {
        wave.run(lds, a, InnermostB(w, first_column, p.n, p.w_pitch), begin, end);
    }

    const int column = first_column + wave.column();
    const size_t first = static_cast<size_t>(first_row);
    if constexpr (Split) {
        float* const plane = p.planes + static_cast<size_t>(slice) * plane_elements(p.m, p.n);
        const BufferResource to = make_buffer(plane + first * static_cast<size_t>(p.n), rows * p.n * 4);
#pragma unroll
        for (int m = 0; m < HalfTile<Half>::kTiles; ++m)
            store_fp32(to, (wave.row(m) * p.n + column) * 4, wave.sum[m], p.n - column, true);
    } else {
        uint16_t* const y = p.y + static_cast<size_t>(at) * static_cast<size_t>(p.y_step);
        const BufferResource to =
            make_buffer(y + first * static_cast<size_t>(p.y_pitch), ((rows - 1) * p.y_pitch + p.n) * 2);
#pragma unroll
        for (int m = 0; m < HalfTile<Half>::kTiles; ++m) {
            const int row = wave.row(m);
            const int offset = row < rows ? (row * p.y_pitch + column) * 2 : kOutside;
            store_halves<Half>(to, offset, wave.sum[m], p.n - column);
        }
    }
}

/// Parts of K that give every compute unit two workgroups, of four K blocks at least, as far as `plane_bytes` reach.
inline int half_parts(const HalfProduct& p, size_t plane_bytes) {
    constexpr int kWanted = 2 * kComputeUnits, kFewestBlocks = 4;
    if (p.count > 1 || p.y_pitch != p.n) return 1;
    const int tiles = ceil_div(p.m, kHalfRows) * ceil_div(p.n, kHalfColumns);
    const size_t fitting = plane_bytes / (plane_elements(p.m, p.n) * sizeof(float));
    int parts = kWanted / tiles;
    if (parts > p.k / kHalfBlockK / kFewestBlocks) parts = p.k / kHalfBlockK / kFewestBlocks;
    if (static_cast<size_t>(parts > 0 ? parts : 0) > fitting) parts = static_cast<int>(fitting);
    return parts > 1 ? parts : 1;
}

/// Launch it, bf16; `planes` may be used for as long as it runs. Returns the vendor's status.
template <bool Outermost>
int launch_half_product(HalfProduct p, void* planes, size_t plane_bytes, void* queue) {
    const int tiles = ceil_div(p.m, kHalfRows) * ceil_div(p.n, kHalfColumns);
    const int blocks = p.k / kHalfBlockK, blocks_per_part = ceil_div(blocks, half_parts(p, plane_bytes));
    const int parts = ceil_div(blocks, blocks_per_part);  // none is empty
    const dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(parts > 1 ? parts : p.count));
    if (parts == 1) {
        LAUNCH((half_product<Bf16, Outermost, false>), grid, dim3(kHalfThreads), 0, queue)(p, blocks);
        return LAUNCH_STATUS();
    }
    p.planes = static_cast<float*>(planes);
    LAUNCH((half_product<Bf16, Outermost, true>), grid, dim3(kHalfThreads), 0, queue)(p, blocks_per_part);
    const size_t sums = ceil_div<size_t>(plane_elements(p.m, p.n), kSumThreads * kSumElements);
    LAUNCH(sum_planes, dim3(static_cast<unsigned>(sums)), dim3(kSumThreads), 0, queue)(p.planes, p.y, p.m, p.n, parts);
    return LAUNCH_STATUS();
}
