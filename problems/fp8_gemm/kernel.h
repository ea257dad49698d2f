/* SPDX-License-Identifier: MIT
 * The ABI of problem fp8_gemm: the one statement of it, included by every kernel and parsed for ctypes.
 *
 * c[i, j] = bf16( sum over K blocks t of 128:  a_scale[i, t] * b_scale[j / 128, t] * sum_{k in t} a[i, k] * b[j, k] )
 *
 * fp8 is the target's flavour: e4m3fn on CUDA and CPU, e4m3fnuz on gfx942. k is a multiple of 128; m and n are any
 * positive sizes. c is poisoned on entry: every element must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_FP8_GEMM_H
#define WARPWAVE_FP8_GEMM_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int fp8_gemm(
    const void* a,          /* [m, k] fp8, row-major */
    const void* b,          /* [n, k] fp8, row-major */
    const float* a_scale,   /* [m, k/128], strides (1, m) */
    const float* b_scale,   /* [ceil(n/128), k/128], row-major */
    void* c,                /* [m, n] bf16, row-major */
    int m, int n, int k,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
