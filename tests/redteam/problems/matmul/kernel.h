/* SPDX-License-Identifier: MIT
 * c[i, j] = s[i] * sum over k of a[i, k] * b[j, k], all fp32 and row-major; c is poisoned on entry. */
#ifndef WARPWAVE_REDTEAM_MATMUL_H
#define WARPWAVE_REDTEAM_MATMUL_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int matmul(const float* a, const float* b, const float* s, float* c, int m, int n, int k,
           void* workspace, size_t workspace_bytes, void* queue);

#ifdef __cplusplus
}
#endif
#endif
