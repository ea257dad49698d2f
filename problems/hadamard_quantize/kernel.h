/* SPDX-License-Identifier: MIT
 * The ABI of problem hadamard_quantize.
 *
 * bf16 rows become fp8 codes with scales, rotated before or not: what FP8 attention needs of q and k ("incoherent
 * processing" of FlashAttention-3), and, not rotated, of v. With H the orthonormal Hadamard matrix of Sylvester's order,
 * H[i][j] = (-1)^popcount(i & j) / sqrt(head_dim):
 *
 *     y[j] = sum_i x[i] * signs[i] * H[i][j]   if rotated, else x[j]
 *     scale = max(1e-4, largest |y| of what shares the scale) / largest
 *     code = y / scale rounded to nearest even; a zero of either sign has code 0
 *
 * fp8 is the target's flavour: e4m3fn on CUDA and CPU, e4m3fnuz on gfx942. What shares a scale, `scales` says:
 *   0  [1]                                     one for the tensor
 *   1  [batch, heads]                          one per batch and head
 *   2  [batch, ceil(tokens / 128), heads]      one per batch, 128 tokens and head
 * head_dim is 64, 128 or 256; batch, tokens and heads are any positive sizes.
 * Every element of codes and scale must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_HADAMARD_QUANTIZE_H
#define WARPWAVE_HADAMARD_QUANTIZE_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int hadamard_quantize(
    const void* x,            /* [batch, tokens, heads, head_dim] bf16, contiguous */
    const float* signs,       /* [head_dim], 1 or -1 */
    unsigned char* codes,     /* [batch, tokens, heads, head_dim] fp8, contiguous */
    float* scale,             /* as above */
    int batch, int tokens, int heads, int head_dim,
    int rotated,              /* 0 or 1 */
    int scales,               /* 0: tensor, 1: head, 2: block of 128 tokens */
    float largest,            /* of the fp8 flavour: 448 or 240 */
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
