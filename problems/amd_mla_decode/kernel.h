/* SPDX-License-Identifier: MIT
 * The ABI of problem amd_mla_decode: one decode step of a whole MLA layer (leaderboard amd-mla-decode).
 *
 * For every request, with 128 heads of 128 + 64 query and key columns and 128 value columns:
 *   kv_row  = x kv_down^T, which becomes row `length` of the request's cache: 512 latent columns, 64 rotary ones, the latter
 *             not yet rotated (as in all cached rows)
 *   q       = (x q_down^T) q_up^T, of each head 128 columns as they are, then 64 rotated to position `length`
 *   k, v    = of each head and token t <= length: kv_up's first 128 rows of the head times the latent columns, then the
 *             rotary columns rotated to position t; its other 128 rows times the latent columns
 *   y       = softmax(q k^T / sqrt(192)) v, all heads side by side, times wo^T
 * Rotation pairs column i with i + 32: (a, b) becomes (a cos - b sin, b cos + a sin) of the angle position * frequency i.
 * Position, frequency (9984^(-i/32), which is what 10000 gives in bf16), angle, cos and sin are each rounded to bf16.
 *
 * Cache rows behind `length` hold NaN, row `length` too until it is written. It may be written, other rows may not.
 * Workspace contents are undefined on entry. All matrices are row-major and contiguous.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_AMD_MLA_DECODE_H
#define WARPWAVE_AMD_MLA_DECODE_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int amd_mla_decode(
    const void* x,          /* [batch, dim] bf16 */
    const void* q_down,     /* [q_rank, dim] bf16 */
    const void* q_up,       /* [128 * 192, q_rank] bf16 */
    const void* kv_down,    /* [576, dim] bf16 */
    const void* kv_up,      /* [128 * 256, 512] bf16 */
    const void* wo,         /* [dim, 128 * 128] bf16 */
    void* kv_cache,         /* [batch, max_len, 576] bf16 */
    void* y,                /* [batch, dim] bf16 */
    void* kv_row,           /* [batch, 576] bf16 */
    int batch, int dim, int q_rank, int length, int max_len,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
