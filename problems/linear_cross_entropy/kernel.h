/* SPDX-License-Identifier: MIT
 * The ABI of problem linear_cross_entropy.
 *
 * The loss of a language model's last layer, and its gradients, in one call. With logits z = x w^T, p = softmax(z) over the
 * vocabulary, y[i, j] = smoothing / vocab + (1 - smoothing) * (j == target[i]) and n the number of tokens that are not
 * ignored:
 *
 *     loss = 1/n * sum over those tokens of ( log(sum_j exp(z[i, j])) - sum_j y[i, j] z[i, j] )
 *     dx = 1/n * (p - y) w          dw = 1/n * (p - y)^T x
 *
 * A token with target -100 is ignored: its row of dx is 0, and it adds nothing to loss and dw. With n = 0 all outputs are
 * 0. Other targets are in 0 .. vocab - 1. hidden is a multiple of 64; tokens and vocab are any positive sizes.
 * The workspace cannot hold the logits of a large case, not even in 16 bits: they have to be made in pieces.
 * Every element of the outputs must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_LINEAR_CROSS_ENTROPY_H
#define WARPWAVE_LINEAR_CROSS_ENTROPY_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int linear_cross_entropy(
    const void* x,          /* [tokens, hidden] bf16, row-major */
    const void* w,          /* [vocab, hidden] bf16, row-major */
    const int* target,      /* [tokens], -100: ignored */
    void* dx,               /* [tokens, hidden] bf16, row-major */
    float* dw,              /* [vocab, hidden], row-major */
    float* loss,            /* [1] */
    int tokens, int hidden, int vocab,
    float smoothing,        /* 0 <= smoothing < 1 */
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
