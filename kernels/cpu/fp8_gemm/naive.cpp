// SPDX-License-Identifier: MIT
//!KERNEL summary block-scaled fp8 product in plain loops, fp32 sums per 128 columns of K
//
// The kernel that runs anywhere: it proves the pipeline and is the readable statement of what the GPU kernels compute.
// Both operands are row-major (K innermost).
// Algorithm and loop order: tile/block_scaled_gemm.h. One thread, no workspace, host memory for one 128-column strip of
// c in fp32. Supports any m and n, k a multiple of 128. Expect a few GFLOP/s.
#include "kernel.h"

#include "status.h"
#include "tile/block_scaled_gemm.h"

extern "C" int fp8_gemm(
    const void* a, const void* b, const float* a_scale, const float* b_scale, void* c, int m, int n, int k,
    void* /*workspace*/, size_t /*workspace_bytes*/, void* /*queue*/) {
    if (m <= 0 || n <= 0 || k <= 0 || k % 128 != 0) return kUnsupportedShape;
    const ScaledOperand left = {static_cast<const uint8_t*>(a), k, 1, a_scale, 1, m};
    const ScaledOperand right = {static_cast<const uint8_t*>(b), k, 1, b_scale, k / 128, 1};
    block_scaled_gemm(left, right, static_cast<uint16_t*>(c), m, n, k);
    return kOk;
}
