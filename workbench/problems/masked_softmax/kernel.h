/* SPDX-License-Identifier: MIT
 * The ABI of problem masked_softmax.
 *
 * p[b][h][i] = softmax of scores + bias over the keys j < lengths[b] and, if causal, j <= i + seqlen_k - seqlen_q; 0 elsewhere,
 * and all 0 for a row that sees no key. repeated[b][h] = v[b][h / (heads_q / heads_k)].
 * bias_kind 0: none, bias is not read; 1: [heads_q, seqlen_q, seqlen_k]; 2: [batch, heads_q, seqlen_q, seqlen_k].
 *
 * Every output is poisoned on entry and must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_MASKED_SOFTMAX_H
#define WARPWAVE_MASKED_SOFTMAX_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int masked_softmax(
    const void* scores,  /* [batch, heads_q, seqlen_q, seqlen_k] fp16 */
    const void* bias,    /* by bias_kind, fp16 */
    const int* lengths,  /* [batch] int32 */
    const void* v,       /* [batch, heads_k, seqlen_k, dim] fp16 */
    void* p,             /* as scores */
    void* repeated,      /* [batch, heads_q, seqlen_k, dim] fp16 */
    int batch, int heads_q, int heads_k, int seqlen_q, int seqlen_k, int dim,
    int bias_kind, int causal,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
