/* SPDX-License-Identifier: MIT
 * The ABI of problem flash_attention_varlen (forward): sequences of different lengths, packed one behind the other.
 *
 * Sequence b has the queries cu_seqlens_q[b] to cu_seqlens_q[b + 1] - 1 and the keys cu_seqlens_k[b] to
 * cu_seqlens_k[b + 1] - 1, and its queries see its own keys only:
 * o = softmax(softmax_scale * q k^T + mask) v and lse = log(sum(exp(...))) (natural logarithm) per query row.
 * Query head h reads key head h / (heads_q / heads_k). With causal != 0 the mask is bottom-right aligned: query i of a
 * sequence sees keys j <= i + keys - queries of it. A row that sees no key has o = 0 and lse = -inf.
 * head_dim is 64, 128 or 256; heads_k divides heads_q; a sequence may have any number of queries and of keys, or none.
 * cu_seqlens_q[0] = cu_seqlens_k[0] = 0 and cu_seqlens_q[batch] = total_q. Keys that no query sees, also behind
 * cu_seqlens_k[batch], may hold NaN.
 * Every element of o and lse must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_FLASH_ATTENTION_VARLEN_H
#define WARPWAVE_FLASH_ATTENTION_VARLEN_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int flash_attention_varlen(
    const void* q,              /* [total_q, heads_q, head_dim] bf16 or fp16, contiguous */
    const void* k,              /* [total_k, heads_k, head_dim], contiguous */
    const void* v,              /* [total_k, heads_k, head_dim], contiguous */
    const int* cu_seqlens_q,    /* [batch + 1] int32 on the device, not decreasing */
    const int* cu_seqlens_k,    /* [batch + 1] int32 on the device, not decreasing */
    void* o,                    /* [total_q, heads_q, head_dim], dtype of q */
    float* lse,                 /* [heads_q, total_q] */
    int batch, int total_q, int total_k,
    int max_seqlen_q,           /* no sequence has more queries */
    int max_seqlen_k,           /* no sequence has more keys */
    int heads_q, int heads_k, int head_dim,
    int half,                   /* 0: bf16, 1: fp16 */
    int causal,
    float softmax_scale,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
