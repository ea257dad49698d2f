/* SPDX-License-Identifier: MIT
 * The ABI of problem mla_decode_fp8: mla_decode (absorbed multi-head latent attention over a paged cache, one KV head)
 * with 656 bytes per token in place of 1152.
 *
 * Token t of request b is row t % 64 of page block_table[b, t / 64]. A row is, in this order and without gaps,
 *   512 bytes   e4m3 codes of the latent columns, in the target's flavour: e4m3fn on CUDA and CPU, e4m3fnuz on gfx942
 *    16 bytes   4 fp32 scales, little-endian: latent column c is code[c] * scale[c / 128]
 *   128 bytes   64 bf16 rotary columns
 * so rows begin at multiples of 16 bytes. Scales are positive and any fp32 number, not powers of two alone.
 * scores use all 576 columns, values are the first 512. Query i of request b sees tokens
 * t < seqlens[b] - (causal ? seqlen_q - 1 - i : 0). A query that sees no token has o = 0 and lse = -inf.
 * Codes, scales and rotary columns of slots beyond a request's length, and of pages no request owns, are NaN;
 * block-table entries beyond a request's pages are arbitrary and must not be followed. Workspace contents are undefined
 * on entry. lse is the natural logarithm of the sum of exp(softmax_scale * score). heads_q is 16, 64 or 128; seqlen_q 1
 * or 2. Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_MLA_DECODE_FP8_H
#define WARPWAVE_MLA_DECODE_FP8_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int mla_decode_fp8(
    const void* q,              /* [batch, seqlen_q, heads_q, 576] bf16, contiguous */
    const void* kv_cache,       /* [num_blocks, 64, 1, 656] bytes, contiguous */
    const int* block_table,     /* [batch, max_blocks_per_seq] int32 */
    const int* seqlens,         /* [batch] int32 */
    void* o,                    /* [batch, seqlen_q, heads_q, 512] bf16 */
    float* lse,                 /* [batch, heads_q, seqlen_q] */
    int batch, int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq,
    int causal,
    float softmax_scale,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
