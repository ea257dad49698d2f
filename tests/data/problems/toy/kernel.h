/* SPDX-License-Identifier: MIT
 * y[i] = alpha * x[i] for i < n; the smallest kernel the scorer can judge. */
#ifndef WARPWAVE_TOY_H
#define WARPWAVE_TOY_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int toy(const float* x, float* y, int n, float alpha, void* workspace, size_t workspace_bytes, void* queue);

#ifdef __cplusplus
}
#endif
#endif
