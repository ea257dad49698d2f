/* SPDX-License-Identifier: MIT
 * The ABI of problem amd_fp8_mm: the product of fp8_gemm in the AMD challenge's layout (leaderboard amd-fp8-mm).
 *
 * c[i, j] = bf16( sum over K blocks t of 128:  a_scale[i, t] * b_scale[j / 128, t] * sum_{k in t} a[i, k] * b[j, k] )
 *
 * Both operands are K-outermost: the contiguous direction is m (of a) and n (of b). fp8 is the target's flavour:
 * e4m3fnuz on gfx942, e4m3fn elsewhere. k is a multiple of 128, n a multiple of 64, m of 32. Every element of c must be
 * written. Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_AMD_FP8_MM_H
#define WARPWAVE_AMD_FP8_MM_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int amd_fp8_mm(
    const void* a,          /* [m, k] fp8, strides (1, m) */
    const void* b,          /* [n, k] fp8, strides (1, n) */
    const float* a_scale,   /* [m, k/128], strides (1, m) */
    const float* b_scale,   /* [ceil(n/128), k/128], strides (1, ceil(n/128)) */
    void* c,                /* [m, n] bf16, row-major */
    int m, int n, int k,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
