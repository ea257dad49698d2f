// SPDX-License-Identifier: MIT
//!KERNEL summary MFMA 32x32x8, 8-bit 32x32x16
//!KERNEL arch gfx942
//
// TF32 is declined.
#include "tile.h"

extern "C" int wgmma_tile(
    const void* a, const void* b, float* c, int n, int k, int type, int repeat, void* /*workspace*/,
    size_t /*workspace_bytes*/, void* queue) {
    return multiply<32>(a, b, c, n, k, type, repeat, queue);
}
