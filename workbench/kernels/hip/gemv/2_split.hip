// SPDX-License-Identifier: MIT
//!KERNEL summary y = A x, long rows cut into parts
//!KERNEL arch gfx942
//!KERNEL step 2 long rows cut into parts
//
// As many parts as give each a few thousand elements, 64 at most; a second launch adds them up, in their order.
#include "gemv.h"

extern "C" int gemv(
    const float* a, const float* x, float* y, int m, int n, void* workspace, size_t workspace_bytes, void* queue) {
    constexpr int kPart = 2048, kMost = 64, kEnoughRows = 8192;
    const int wanted = m >= kEnoughRows ? 1 : ceil_div(n, kPart);
    const int parts = wanted < kMost ? wanted : kMost;
    return launch_gemv(a, x, y, m, n, parts > 0 ? parts : 1, workspace, workspace_bytes, queue);
}
