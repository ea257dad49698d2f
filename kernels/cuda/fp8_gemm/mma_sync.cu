// SPDX-License-Identifier: MIT
//!KERNEL summary cp.async ring, swizzled shared memory, mma.sync FP8, two-level accumulation, split K for few tiles
//!KERNEL arch sm_89 sm_90a
//
//   producer loop  gemm/mma_sync.h (block_scaled_gemm)
//   main loop      gemm/mma_sync.h (block_scaled_gemm)
//   epilogue       gemm/mma_sync.h (store_bf16, sum_planes)
//
// Block-scaled FP8 GEMM without Hopper's own units: the L4 kernel, and on H100/H200 the plain one to measure others against.
//
// Algorithm. A thread block owns one tile of c. A ring of 3 to 5 stages in shared memory, filled by 16-byte cp.async,
// holds one K block of 128 per stage: the tile's rows of A and B (128 bytes each, XOR-swizzled) and their scales. Per K
// block each warp multiplies its part in the tensor cores, from zero, then adds scale * partial to its fp32 accumulators.
// One barrier per K block.
//
//   tile        warps   threads  warp part  stages  shared bytes   registers sm_89, sm_90a
//   16 x 128    1 x 4   128      16 x 32    5       92 560          89,  95
//   32 x 128    1 x 4   128      32 x 32    4       82 496         135, 128
//   64 x 64     2 x 2   128      32 x 32    3       49 968         128, 126
//   64 x 128    2 x 4   256      32 x 32    4       99 392         128, 127
//   128 x 128   2 x 4   256      64 x 32    3       99 888         176, 206
//
// Shared memory allows one block per multiprocessor on sm_89 (two of 64 x 64) and two on sm_90 (four of 64 x 64), where
// 128 x 128 is held to one by its registers. Nothing spills.
//
// Which tile, and into how many parts K is split, gemm/mma_sync_launch.h decides from m, n, k, the multiprocessor count
// and the workspace: splitting takes splits * m * round_up(n, 8) * 4 bytes of it, and without workspace K stays whole.
// The parts are added by a second kernel in a fixed order, so results repeat to the bit.
//
// Shapes. Any m and n from 1 on (rows past the end are zero-filled on load and not stored; n that is no multiple of 8 takes
// 2-byte stores), k a multiple of 128. Pointers 16-byte aligned.
//
// Limits. On sm_89 the tensor cores run FP8 natively (QMMA); power holds an L4 well below its sheet. sm_90 has no FP8
// mma.sync: fragments are converted to fp16 in registers and multiplied by HMMA (gemm/mma_sync_operands.h), so the ceiling is the
// fp16 rate of mma.sync, under a third of Hopper's FP8 peak, which only wgmma reaches. A product of two scales below 2^-126
// loses bits, and is zero below 2^-150.

#include "gemm/mma_sync_launch.h"
#include "gemm/mma_sync_operands.h"
#include "kernel.h"
#include "launch.h"

using namespace gemm;

using Shapes = ShapeTable<
    KMajor, TileShape<16, 128, 1, 4, 5>, TileShape<32, 128, 1, 4, 4>, TileShape<64, 64, 2, 2, 3>,
    TileShape<64, 128, 2, 4, 4>, TileShape<128, 128, 2, 4, 3>>;

/// The kernel.h arguments in the form the tile code takes.
static BlockScaledGemm describe(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k,
    void* workspace) {
    return {
        static_cast<const uint8_t*>(a),
        static_cast<const uint8_t*>(b),
        a_scale,
        b_scale,
        static_cast<uint16_t*>(c),
        static_cast<float*>(workspace),
        m,
        n,
        k,
        /*b_scale_row=*/k / 128,
        /*b_scale_k=*/1};
}

extern "C" int fp8_gemm(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k,
    void* workspace, size_t workspace_bytes, void* queue) {
    if (m < 1 || n < 1 || k < 128 || k % 128 != 0) return kUnsupportedShape;
    return Shapes::run(describe(a, b, a_scale, b_scale, c, m, n, k, workspace), workspace_bytes, queue);
}
