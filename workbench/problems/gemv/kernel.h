/* SPDX-License-Identifier: MIT
 * The ABI of problem gemv.
 *
 * y[i] = sum over j of a[i][j] x[j], all fp32, a row-major. The workspace holds partial sums of cut rows.
 *
 * Every output is poisoned on entry and must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_GEMV_H
#define WARPWAVE_GEMV_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int gemv(
    const float* a,  /* [m, n] */
    const float* x,  /* [n] */
    float* y,        /* [m] */
    int m, int n,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
