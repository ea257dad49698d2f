/* SPDX-License-Identifier: MIT
 * The ABI of problem sgemm.
 *
 * out = alpha * a b + beta * c in fp32, all row-major and contiguous. With beta 0 c must not be read: it holds NaN.
 *
 * Every output is poisoned on entry and must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_SGEMM_H
#define WARPWAVE_SGEMM_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int sgemm(
    const float* a,  /* [m, k] */
    const float* b,  /* [k, n] */
    const float* c,  /* [m, n] */
    float* out,      /* [m, n] */
    int m, int n, int k,
    float alpha, float beta,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
