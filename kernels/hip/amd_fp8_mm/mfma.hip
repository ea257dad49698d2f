// SPDX-License-Identifier: MIT
//!KERNEL summary MFMA 16x16x32 FP8 from K-outermost operands, transposed in registers under the products, split K
//!KERNEL arch gfx942
//!KERNEL tune TILE_ROWS=0,64,128
//!KERNEL tune PARTS=0,1,2,4,8
//
// Block-scaled FP8 GEMM for MI300 (CDNA3), e4m3fnuz, both operands with K outermost (leaderboard amd-fp8-mm).
//
// Algorithm. MFMA wants eight consecutive k of one row per lane, memory has consecutive rows of one k. A thread loads
// 16 rows by a few k in 16-byte pieces, transposes them with v_perm_b32 and writes them to LDS, K innermost. Per K block and
// 16 x 16 tile four MFMAs from zero, then accumulator += scale * partial in fp32.
//
//   TILE_ROWS   threads  waves  wave part  LDS bytes  workgroups per compute unit
//   64          256      2 x 2  32 x 64    24 576     2
//   128         256      2 x 2  64 x 64    32 768     2
//
// A tile is 128 columns wide. Tiles of 64 rows, for m up to 64, put a K block into LDS and multiply it in turns
// (tile/block_scaled_gemm.h). Those of 128 rows have LDS in two halves, so that transposing, loading and multiplying overlap;
// their workgroups stay and go from tile to tile, so that results leave under the next tile (tile/block_scaled_overlapped.h).
//
// Few tiles: K is cut into PARTS parts, which write fp32 planes of m * n * 4 bytes to the workspace; a second kernel adds
// them in a fixed order. Without workspace K stays whole. PARTS 0: the model of tile/block_scaled_launch.h decides.
//
// Shapes. m and n multiples of 16 (the problem promises 32 and 64), below 2 Mi; k a multiple of 128. Tiles may stick out of
// c in both directions. a and b 16-byte aligned.

#include "kernel.h"
#include "launch.h"
#include "tile/block_scaled_launch.h"
#include "tile/block_scaled_overlapped.h"
#include "tile/fp8_k_outermost.h"

#ifndef TILE_ROWS
#define TILE_ROWS 0
#endif
#ifndef PARTS
#define PARTS 0
#endif

/// Workgroups that share `tiles` tiles: as many as run at a time. But where those would get one tile each, two of them on some
/// compute units and one on others, and leave after a few K blocks, one per compute unit with two tiles in turn.
static long long workgroups(long long tiles, int blocks) {
    constexpr int kFewBlocks = 4;
    if (tiles <= kComputeUnits || tiles > 2 * kComputeUnits || blocks > kFewBlocks) return 2 * kComputeUnits;
    return ceil_div<long long>(tiles, 2 * kDies) * kDies;
}

extern "C" int amd_fp8_mm(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k,
    void* workspace, size_t workspace_bytes, void* queue) {
    constexpr int kGroup = 16;          // rows per load
    constexpr int kMaxPitch = 1 << 21;  // a K block of rows, and a tile of fp32 results, are addressed with 31 bits
    if (m < kGroup || m % kGroup != 0 || n < kGroup || n % kGroup != 0 || m >= kMaxPitch || n >= kMaxPitch)
        return kUnsupportedShape;
    if (k < kBlockK || k % kBlockK != 0) return kUnsupportedShape;
    const BlockScaledGemm problem = {
        static_cast<const uint8_t*>(a),
        static_cast<const uint8_t*>(b),
        a_scale,
        b_scale,
        static_cast<uint16_t*>(c),
        static_cast<float*>(workspace),
        m,
        n,
        k,
        /*b_scale_row=*/1,
        /*b_scale_k=*/ceil_div(n, kBlockK)};
    const int rows = TILE_ROWS > 0 ? TILE_ROWS : m <= 64 ? 64 : 128;
    const Plan plan = choose_plan({64, 128}, m, n, k, workspace ? workspace_bytes : 0, rows, PARTS);
    if (plan.rows == 64) return launch_block_scaled<KOutermost, TileShape<2, 2>>(problem, plan.parts, queue);
    using Shape = TileShape<2, 4>;
    const long long tiles = count_tiles<Shape>(m, n);
    return launch_product<Shape>(
        block_scaled_overlapped<Shape, false>, block_scaled_overlapped<Shape, true>, problem, plan.parts, queue, tiles,
        workgroups(tiles, k / kBlockK));
}
