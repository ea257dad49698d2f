/* SPDX-License-Identifier: MIT
 * The ABI of the test problem scale: y[i] = factor * x[i]. */
#ifndef WARPWAVE_TEST_SCALE_H
#define WARPWAVE_TEST_SCALE_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int scale(
    const float* x,         /* [n] */
    float* y,               /* [n] */
    int n,
    float factor,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
