// SPDX-License-Identifier: MIT
//!KERNEL summary SGEMM in plain loops, row by row
//
// The readable statement of what the GPU kernels compute. Loops run i, k, j, so that the inner one reads rows of B. One
// thread, no workspace.
#include "kernel.h"

#include "status.h"

extern "C" int sgemm(
    const float* a, const float* b, const float* c, float* out, int m, int n, int k, float alpha, float beta,
    void* /*workspace*/, size_t /*workspace_bytes*/, void* /*queue*/) {
    if (m <= 0 || n <= 0 || k <= 0) return kUnsupportedShape;
    const size_t columns = static_cast<size_t>(n), depth = static_cast<size_t>(k);
    for (size_t row = 0; row < static_cast<size_t>(m); ++row) {
        float* to = out + row * columns;
        for (size_t j = 0; j < columns; ++j) to[j] = 0.0f;
        for (size_t i = 0; i < depth; ++i) {
            const float left = a[row * depth + i];
            const float* right = b + i * columns;
            for (size_t j = 0; j < columns; ++j) to[j] += left * right[j];
        }
        for (size_t j = 0; j < columns; ++j)
            to[j] = beta == 0.0f ? alpha * to[j] : alpha * to[j] + beta * c[row * columns + j];
    }
    return kOk;
}
