/* SPDX-License-Identifier: MIT
 * The ABI of problem gelu.
 *
 * y[i] = 0.5 x (1 + erf(x / sqrt(2))), or with tanh_form 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
 * y(+inf) = +inf and y(-inf) = 0, the limits.
 *
 * Every output is poisoned on entry and must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_GELU_H
#define WARPWAVE_GELU_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int gelu(
    const void* x,  /* [n] fp16 */
    void* y,        /* [n] fp16 */
    long long n,
    int tanh_form,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
