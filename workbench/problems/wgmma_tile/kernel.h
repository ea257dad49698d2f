/* SPDX-License-Identifier: MIT
 * The ABI of problem wgmma_tile.
 *
 * c[r] = a[r] b[r]^T for `repeat` independent tiles, sums in fp32. type 0: fp16; 1: bf16; 2: fp32 with TF32's 10 fraction bits;
 * 3: fp8, e4m3 (e4m3fnuz on AMD GPUs). n is a multiple of 8 up to 256; rows of a and b are multiples of
 * 32 bytes.
 *
 * Every output is poisoned on entry and must be written. Workspace contents are undefined on entry.
 * Returns 0, a KernelStatus (kernels/common/status.h, negative) or the vendor's error code (positive). */
#ifndef WARPWAVE_WGMMA_TILE_H
#define WARPWAVE_WGMMA_TILE_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif

int wgmma_tile(
    const void* a,  /* [repeat, 64, k] */
    const void* b,  /* [repeat, n, k] */
    float* c,       /* [repeat, 64, n] */
    int n, int k, int type, int repeat,
    void* workspace, size_t workspace_bytes,
    void* queue);

#ifdef __cplusplus
}
#endif
#endif
