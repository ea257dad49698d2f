// SPDX-License-Identifier: MIT
//!KERNEL summary MFMA 16x16x32 FP8, LDS refilled while it is read, two groups of waves take turns, fp32 promotion per K block, split K
//!KERNEL arch gfx942
//!KERNEL tune TILE_ROWS=0,32,64,128,256
//!KERNEL tune PARTS=0,1,2,4,8
//
// Block-scaled FP8 GEMM for MI300 (CDNA3), e4m3fnuz, both operands with K innermost.
//
// Algorithm. A workgroup owns a tile of c. LDS holds one K block of 128: the tile's rows of A and B (128 bytes each, 16-byte
// chunks XOR-swizzled). While a block is multiplied the next one and its scales travel from memory into registers. Per K block
// and 16 x 16 tile four MFMAs from zero, then accumulator += scale * partial, all in fp32.
//
//   tile       threads  waves  wave part  LDS bytes  workgroups per compute unit  loop
//   32 x 128   128      1 x 2  32 x 64    20 480     3                            tile/block_scaled_gemm.h
//   64 x 128   256      2 x 2  32 x 64    24 576     2                            tile/block_scaled_gemm.h
//   128 x 128  256      2 x 2  64 x 64    32 768     2                            tile/innermost_overlapped.h
//   256 x 128  512      4 x 2  64 x 64    49 152     1                            tile/block_scaled_gemm.h
//   256 x 256  512      4 x 2  64 x 128   65 536     1                            tile/innermost_overlapped.h
//
// The first two are for few rows and load and multiply in turns. So do tiles of 256 x 128, for at most two K blocks, where
// 128 rows take more than a round and 256 do not: the other loop's longer way to its first product is not earned back.
//
// Large tiles, 256 x 256, need half of the traffic of small ones, 128 x 128. They make up c as far as every compute unit has as
// many; the rest is made of small ones, in a launch of its own, so that few compute units are idle at the end. TILE_ROWS asks
// for tiles of one height alone.
//
// Thread layout. MFMA rows are columns of c (operand B comes first), MFMA columns are rows of c. Lane (g = lane / 16,
// r = lane % 16) ends up with 16 consecutive columns 16 g .. of the row that r stands for, in every 64 columns.
//
// Few tiles: K is cut into PARTS parts, which write fp32 planes of m * n * 4 bytes to the workspace; a second kernel adds
// them in a fixed order. Without workspace K stays whole. TILE_ROWS and PARTS 0: the model of tile/block_scaled_launch.h
// decides.
//
// Shapes. Any m and n from 1 on: rows beyond the end are zeros by the buffer's bounds, and not stored; n that is no multiple
// of 8 takes 2-byte stores. k a multiple of 128 below 8 Mi, n below 2 Mi. a and b 16-byte aligned.
//
// Limits. n that is no multiple of 8 takes the first loop with tiles of 128 rows.

#include "kernel.h"
#include "launch.h"
#include "tile/block_scaled_launch.h"
#include "tile/fp8_k_innermost.h"
#include "tile/innermost_launch.h"

#ifndef TILE_ROWS
#define TILE_ROWS 0
#endif
#ifndef PARTS
#define PARTS 0
#endif
#ifndef COMPUTE_UNITS
#define COMPUTE_UNITS kComputeUnits
#endif

extern "C" int fp8_gemm(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k,
    void* workspace, size_t workspace_bytes, void* queue) {
    constexpr int kMaxK = 1 << 23, kMaxN = 1 << 21;  // 256 rows of fp8, and of fp32 results, are addressed with 31 bits
    if (m < 1 || n < 1 || k < kBlockK || k % kBlockK != 0 || k >= kMaxK || n >= kMaxN) return kUnsupportedShape;
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
        /*b_scale_row=*/k / kBlockK,
        /*b_scale_k=*/1};
    const size_t bytes = workspace ? workspace_bytes : 0;
    const Plan plan = TILE_ROWS == LargeTile::kM
                          ? choose_plan({LargeTile::kM}, m, n, k, bytes, TILE_ROWS, PARTS, COMPUTE_UNITS)
                          : choose_plan({32, 64, 128}, m, n, k, bytes, TILE_ROWS, PARTS, COMPUTE_UNITS);
    using ShortTile = TileShape<4, 4>;
    if (TILE_ROWS == 0 && plan.rows == 128 && k <= 2 * kBlockK && count_tiles<SmallTile>(m, n) > COMPUTE_UNITS &&
        count_tiles<ShortTile>(m, n) <= COMPUTE_UNITS)
        return launch_block_scaled<KInnermost, ShortTile>(problem, plan.parts, queue);
    if (n % 8 == 0 && plan.rows >= 128)
        return launch_innermost<ScaledSums>(problem, plan.parts, TILE_ROWS, COMPUTE_UNITS, queue);
    switch (plan.rows) {
        case 32: return launch_block_scaled<KInnermost, TileShape<1, 2>>(problem, plan.parts, queue);
        case 64: return launch_block_scaled<KInnermost, TileShape<2, 2>>(problem, plan.parts, queue);
        default: return launch_block_scaled<KInnermost, TileShape<2, 4>>(problem, plan.parts, queue);
    }
}
