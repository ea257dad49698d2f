/* SPDX-License-Identifier: MIT
 * The ABI of the tests' problem: y[i] = a * x[i] + x[n - 1 - i] and total[0] = sum of y. */
#ifndef WARPWAVE_AXPY_H
#define WARPWAVE_AXPY_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int axpy(
    const void* x,    /* [n] fp32 */
    float* y,         /* [n] */
    float* total,     /* [1] */
    int n, float a,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
