// SPDX-License-Identifier: MIT
//!KERNEL summary y = A x in plain loops
//
// The readable statement of what the GPU kernels compute. One thread, no workspace.
#include "kernel.h"

#include "status.h"

extern "C" int gemv(
    const float* a, const float* x, float* y, int m, int n, void* /*workspace*/, size_t /*workspace_bytes*/,
    void* /*queue*/) {
    if (m <= 0 || n <= 0) return kUnsupportedShape;
    for (int i = 0; i < m; ++i) {
        const float* row = a + static_cast<size_t>(i) * static_cast<size_t>(n);
        float sum = 0.0f;
        for (int j = 0; j < n; ++j) sum += row[j] * x[j];
        y[i] = sum;
    }
    return kOk;
}
