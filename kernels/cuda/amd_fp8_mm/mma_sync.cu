// SPDX-License-Identifier: MIT
//!KERNEL summary the block-scaled FP8 product of MN-major operands: bytes transposed between ldmatrix.trans and mma.sync
//!KERNEL arch sm_89 sm_90a
//
//   producer loop  gemm/mma_sync.h (block_scaled_gemm)
//   main loop      gemm/mma_sync.h (block_scaled_gemm)
//   epilogue       gemm/mma_sync.h (store_bf16, sum_planes)
//
// The AMD challenge's FP8 product in e4m3fn: same ring, promotion and split K as fp8_gemm/mma_sync.cu, other operand layout.
//
// Algorithm. Both operands have their rows contiguous, while mma wants four consecutive k of one row in a register. Nothing
// is transposed in memory: tiles of 128 k by 64 or 128 rows enter shared memory as they are, ldmatrix.trans brings byte
// pairs of two k, and two byte permutes per two registers finish the job (gemm/mma_sync_operands.h has the index algebra).
// That is 24 permutes for 16 mma in a 64 x 32 warp part; no pre-pass, no workspace for transposed copies.
//
//   tile        warps   threads  warp part  stages  shared bytes   registers sm_89, sm_90a
//   32 x 128    1 x 4   128      32 x 32    4       82 496         123, 128
//   64 x 64     2 x 2   128      32 x 32    3       49 968         123, 131
//   64 x 128    2 x 4   256      32 x 32    4       99 392         124, 127
//   128 x 128   2 x 4   256      64 x 32    3       99 888         177, 211
//
// Tile and splits are chosen by gemm/mma_sync_launch.h; splitting takes splits * m * n * 4 bytes of workspace.
//
// Shapes. m a multiple of 32, n of 64, k of 128 (the loads need multiples of 16). Pointers 16-byte aligned.
//
// Limits. As fp8_gemm/mma_sync.cu: FP8 tensor cores on sm_89, fp16 ones after conversion on sm_90. Nothing spills.

#include "gemm/mma_sync_launch.h"
#include "gemm/mma_sync_operands.h"
#include "kernel.h"
#include "launch.h"

using namespace gemm;

using Shapes = ShapeTable<
    MnMajor, TileShape<32, 128, 1, 4, 4>, TileShape<64, 64, 2, 2, 3>, TileShape<64, 128, 2, 4, 4>,
    TileShape<128, 128, 2, 4, 3>>;

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
        /*b_scale_row=*/1,
        /*b_scale_k=*/ceil_div(n, 128)};
}

extern "C" int amd_fp8_mm(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k,
    void* workspace, size_t workspace_bytes, void* queue) {
    if (m < 32 || n < 64 || k < 128 || m % 32 != 0 || n % 64 != 0 || k % 128 != 0) return kUnsupportedShape;
    return Shapes::run(describe(a, b, a_scale, b_scale, c, m, n, k, workspace), workspace_bytes, queue);
}
