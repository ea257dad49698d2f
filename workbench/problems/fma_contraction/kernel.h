/* SPDX-License-Identifier: MIT
 * The ABI of problem fma_contraction.
 *
 * dots[r] = sum over i of x[r][i] y[r][i], term by term; values[r] = polynomial of degree 7 at x[r][0] by Horner's rule;
 * residuals[r] = x[r][0] y[r][0] - p with p = x[r][0] y[r][0] rounded to fp32.
 * fused 1: every a * b + c is rounded once; 0: after the product and after the sum. A kernel that cannot do what is asked returns
 * kUnsupportedShape.
 *
 * Every output is poisoned on entry and must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_FMA_CONTRACTION_H
#define WARPWAVE_FMA_CONTRACTION_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int fma_contraction(
    const float* x,             /* [rows, n] */
    const float* y,             /* [rows, n] */
    const float* coefficients,  /* [8], that of x^0 first */
    float* dots,                /* [rows] */
    float* values,              /* [rows] */
    float* residuals,           /* [rows] */
    int rows, int n, int fused,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
