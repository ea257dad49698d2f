// SPDX-License-Identifier: MIT
//!KERNEL summary y = A x, a warp per row
//!KERNEL arch gfx942
//!KERNEL step 1 a warp per row
//
// Fast where rows are many; 64 long rows keep only 64 warps of the GPU busy.
#include "gemv.h"

extern "C" int gemv(
    const float* a, const float* x, float* y, int m, int n, void* workspace, size_t workspace_bytes, void* queue) {
    return launch_gemv(a, x, y, m, n, 1, workspace, workspace_bytes, queue);
}
