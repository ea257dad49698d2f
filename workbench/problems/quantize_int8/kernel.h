/* SPDX-License-Identifier: MIT
 * The ABI of problem quantize_int8.
 *
 * symmetric: scale = max|x| / 127, zero = 0, q = round(x / scale).
 * asymmetric: lo = min(x, 0), hi = max(x, 0), scale = (hi - lo) / 255, zero = round(-lo / scale) - 128,
 * q = clamp(round(x / scale) + zero, -128, 127). All x zero: scale 1, q = zero. Halves round to even.
 *
 * Every output is poisoned on entry and must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_QUANTIZE_INT8_H
#define WARPWAVE_QUANTIZE_INT8_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int quantize_int8(
    const void* x,         /* [n] fp16 */
    signed char* q,        /* [n] int8 */
    float* scale,          /* [1] */
    int* zero,             /* [1] int32 */
    long long n,
    int symmetric,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
