/* SPDX-License-Identifier: MIT
 * The ABI of problem rmsnorm.
 *
 * y[r][c] = x[r][c] * weight[c] / sqrt(mean over the row of x^2 + eps). Sums in fp32, one rounding at the end.
 * bfloat 1: x, weight and y are bf16; 0: fp32. All are contiguous.
 *
 * Every output is poisoned on entry and must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_RMSNORM_H
#define WARPWAVE_RMSNORM_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int rmsnorm(
    const void* x,       /* [rows, width] */
    const void* weight,  /* [width] */
    void* y,             /* [rows, width] */
    int rows, int width, int bfloat,
    float eps,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
