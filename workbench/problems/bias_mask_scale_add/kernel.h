/* SPDX-License-Identifier: MIT
 * The ABI of problem bias_mask_scale_add.
 *
 * y = (x + bias) * mask * scale + residual in fp32, rounded once. mask is 0 or 1; where it is 0, y is residual, whatever
 * x is.
 *
 * Every output is poisoned on entry and must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_BIAS_MASK_SCALE_ADD_H
#define WARPWAVE_BIAS_MASK_SCALE_ADD_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int bias_mask_scale_add(
    const void* x,              /* [rows, width] fp16 */
    const void* residual,       /* [rows, width] fp16 */
    const void* bias,           /* [width] fp16 */
    const unsigned char* mask,  /* [rows, width] uint8 */
    void* y,                    /* [rows, width] fp16 */
    int rows, int width,
    float scale,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
