/* SPDX-License-Identifier: MIT
 * The ABI of problem flash_attention_bwd.
 *
 * The gradients of o = softmax(softmax_scale * q k^T + mask) v, given dout, that of o, and what the forward pass left: o
 * itself and lse = log(sum(exp(...))) (natural logarithm) per query row. With p = exp(softmax_scale * q k^T - lse) where
 * the mask lets a query see a key, else 0, delta = rowsum(dout * o) and ds = p * (dout v^T - delta):
 *
 *     dq = softmax_scale * ds k        dk = softmax_scale * ds^T q        dv = p^T dout
 *
 * Query head h reads key head h / (heads_q / heads_k); dk and dv sum over the query heads that share a key head. With
 * causal != 0 the mask is bottom-right aligned: query i sees keys j <= i + seqlen_k - seqlen_q. A row that sees no key
 * has o = 0, lse = -inf and dq = 0, and adds nothing to dk and dv.
 * head_dim is 64, 128 or 256; seqlen_q and seqlen_k are any positive sizes; heads_k divides heads_q.
 * Every element of dq, dk and dv must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_FLASH_ATTENTION_BWD_H
#define WARPWAVE_FLASH_ATTENTION_BWD_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int flash_attention_bwd(
    const void* q,          /* [batch, seqlen_q, heads_q, head_dim] bf16 or fp16, contiguous */
    const void* k,          /* [batch, seqlen_k, heads_k, head_dim], contiguous */
    const void* v,          /* [batch, seqlen_k, heads_k, head_dim], contiguous */
    const void* o,          /* [batch, seqlen_q, heads_q, head_dim], contiguous */
    const void* dout,       /* [batch, seqlen_q, heads_q, head_dim], contiguous */
    const float* lse,       /* [batch, heads_q, seqlen_q] */
    void* dq,               /* [batch, seqlen_q, heads_q, head_dim], dtype of q */
    void* dk,               /* [batch, seqlen_k, heads_k, head_dim], dtype of q */
    void* dv,               /* [batch, seqlen_k, heads_k, head_dim], dtype of q */
    int batch, int seqlen_q, int seqlen_k, int heads_q, int heads_k, int head_dim,
    int half,               /* 0: bf16, 1: fp16 */
    int causal,
    float softmax_scale,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
