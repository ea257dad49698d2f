// SPDX-License-Identifier: MIT
//!KERNEL summary MFMA 16x16x32 FP8, swizzled LDS, next K block in registers, fp32 promotion per K block, split K
//!KERNEL arch gfx942
//!KERNEL tune TILE_ROWS=0,32,64,128,256
//!KERNEL tune PARTS=0,1,2,4,8
//
// Block-scaled FP8 GEMM for MI300 (CDNA3), e4m3fnuz, both operands with K innermost.
//
// Algorithm. A workgroup owns one tile of c of 128 columns. LDS holds one K block of 128: the tile's rows of A and B (128
// bytes each, 16-byte chunks XOR-swizzled). While a block is multiplied the next one and its scales travel from memory into
// registers. Each wave owns a part of up to 64 x 64 of c: per K block and 16 x 16 tile four MFMAs from zero, then
// accumulator += scale * partial, all in fp32. Two barriers per K block.
//
//   TILE_ROWS   threads  waves  wave part  LDS bytes  workgroups per compute unit
//   32          128      1 x 2  32 x 64    20 480     3
//   64          256      2 x 2  32 x 64    24 576     2
//   128         256      2 x 2  64 x 64    32 768     2
//   256         512      4 x 2  64 x 64    49 152     1
//
// Thread layout. MFMA rows are columns of c (operand B comes first), MFMA columns are rows of c. Lane (g = lane / 16,
// r = lane % 16) ends up with 16 consecutive columns 16 g .. of the row that r stands for: two 16-byte stores of bf16.
//
// Few tiles: K is cut into PARTS parts, which write fp32 planes of m * n * 4 bytes to the workspace; a second kernel adds
// them in a fixed order. Without workspace K stays whole. TILE_ROWS and PARTS 0: the model of tile/block_scaled_launch.h
// decides.
//
// Shapes. Any m and n from 1 on: rows beyond the end are zeros by the buffer's bounds, and not stored; n that is no multiple
// of 8 takes 2-byte stores. k a multiple of 128 below 8 Mi, n below 2 Mi. a and b 16-byte aligned.
//
// Limits. One LDS buffer: loads into it and multiplication alternate within a workgroup, and overlap only between the two
// workgroups (or the waves) of a compute unit.

#include "kernel.h"
#include "launch.h"
#include "tile/block_scaled_launch.h"
#include "tile/fp8_k_innermost.h"

#ifndef TILE_ROWS
#define TILE_ROWS 0
#endif
#ifndef PARTS
#define PARTS 0
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
    const Plan plan = choose_plan({32, 64, 128, 256}, m, n, k, workspace ? workspace_bytes : 0, TILE_ROWS, PARTS);
    switch (plan.rows) {
        case 32: return launch_block_scaled<KInnermost, TileShape<1, 2>>(problem, plan.parts, queue);
        case 64: return launch_block_scaled<KInnermost, TileShape<2, 2>>(problem, plan.parts, queue);
        case 128: return launch_block_scaled<KInnermost, TileShape<2, 4>>(problem, plan.parts, queue);
        default: return launch_block_scaled<KInnermost, TileShape<4, 4>>(problem, plan.parts, queue);
    }
}
