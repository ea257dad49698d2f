// SPDX-License-Identifier: MIT
//!KERNEL summary MFMA 16x16x16, 8-bit 16x16x32
//!KERNEL arch gfx942
//
// TF32 is declined.
#include "tile.h"

extern "C" int wgmma_tile(
    const void* a, const void* b, float* c, int n, int k, int type, int repeat, void* /*workspace*/,
    size_t /*workspace_bytes*/, void* queue) {
    return multiply<16>(a, b, c, n, k, type, repeat, queue);
}
