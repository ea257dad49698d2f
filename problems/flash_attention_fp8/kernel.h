/* SPDX-License-Identifier: MIT
 * The ABI of problem flash_attention_fp8 (forward).
 *
 * With Q = q * q_scale, K = k * k_scale, V = v * v_scale: o = softmax(softmax_scale * Q K^T + mask) V and
 * lse = log(sum(exp(...))) (natural logarithm) per query row. fp8 is the target's flavour: e4m3fn on CUDA and CPU,
 * e4m3fnuz on gfx942. A scale is positive; which tokens and heads share one, `scales` says, for all three alike:
 *   0  [1]                                     one for the tensor
 *   1  [batch, heads]                          one per batch and head
 *   2  [batch, ceil(tokens / 128), heads]      one per batch, 128 tokens and head
 * Query head h reads key head h / (heads_q / heads_k). With causal != 0 the mask is bottom-right aligned: query i sees
 * keys j <= i + seqlen_k - seqlen_q. A row that sees no key has o = 0 and lse = -inf.
 * head_dim is 64, 128 or 256; seqlen_q and seqlen_k are any positive sizes; heads_k divides heads_q.
 * Every element of o and lse must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_FLASH_ATTENTION_FP8_H
#define WARPWAVE_FLASH_ATTENTION_FP8_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int flash_attention_fp8(
    const void* q,          /* [batch, seqlen_q, heads_q, head_dim] fp8, contiguous */
    const void* k,          /* [batch, seqlen_k, heads_k, head_dim] fp8, contiguous */
    const void* v,          /* [batch, seqlen_k, heads_k, head_dim] fp8, contiguous */
    const float* q_scale,   /* as above, tokens = seqlen_q, heads = heads_q, contiguous */
    const float* k_scale,   /* tokens = seqlen_k, heads = heads_k */
    const float* v_scale,   /* tokens = seqlen_k, heads = heads_k */
    void* o,                /* [batch, seqlen_q, heads_q, head_dim] bf16 */
    float* lse,             /* [batch, heads_q, seqlen_q] */
    int batch, int seqlen_q, int seqlen_k, int heads_q, int heads_k, int head_dim,
    int scales,             /* 0: tensor, 1: head, 2: block of 128 tokens */
    int causal,
    float softmax_scale,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
