/* SPDX-License-Identifier: MIT
 * The ABI of problem amd_moe: one mixture-of-experts layer (leaderboard amd-mixture-of-experts).
 *
 * For every token x:
 *   l = router x, p = softmax(l) over all experts; the `chosen` experts with the largest p count, of equal ones any
 *   y = expert(x) of the shared expert, which is number `experts`, + sum over the chosen e of p[e] * expert_e(x)
 *   expert_e(x) = (silu(x gate_e) * (x up_e)) down_e, silu(a) = a / (1 + exp(-a))
 * p is not divided by the sum of the chosen ones.
 *
 * Expert e's matrices begin offsets[0][e] elements behind gate, offsets[1][e] behind up, offsets[2][e] behind down; offsets
 * may be negative and have any order. They are multiples of 8. hidden and inner are multiples of 64, chosen <= experts <= 64.
 *
 * Workspace contents are undefined on entry. All matrices are row-major and contiguous.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_AMD_MOE_H
#define WARPWAVE_AMD_MOE_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

int amd_moe(
    const void* x,           /* [tokens, hidden] fp16 */
    const void* router,      /* [experts, hidden] fp16 */
    const void* gate,        /* of an expert [hidden, inner] fp16 */
    const void* up,          /* of an expert [hidden, inner] fp16 */
    const void* down,        /* of an expert [inner, hidden] fp16 */
    const int64_t* offsets,  /* [3, experts + 1] */
    void* y,                 /* [tokens, hidden] fp16 */
    int tokens, int hidden, int inner, int experts, int chosen,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
