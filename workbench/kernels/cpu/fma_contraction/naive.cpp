// SPDX-License-Identifier: MIT
//!KERNEL summary both kinds of multiply-add, by fmaf and by plain operators
//!KERNEL flags c++ -ffp-contract=off
//
// With contraction off, a * b + c is rounded twice on every processor, and fmaf once. One thread, no workspace.
#include "kernel.h"

#include <math.h>

#include "status.h"

namespace {

template <bool kFused>
float multiply_add(float a, float b, float c) {
    return kFused ? fmaf(a, b, c) : a * b + c;
}

template <bool kFused>
void run(
    const float* x, const float* y, const float* coefficients, float* dots, float* values, float* residuals, int rows,
    int n) {
    for (int row = 0; row < rows; ++row) {
        const float* left = x + static_cast<size_t>(row) * static_cast<size_t>(n);
        const float* right = y + static_cast<size_t>(row) * static_cast<size_t>(n);
        float sum = 0.0f;
        for (int i = 0; i < n; ++i) sum = multiply_add<kFused>(left[i], right[i], sum);
        dots[row] = sum;
        float value = coefficients[7];
        for (int i = 6; i >= 0; --i) value = multiply_add<kFused>(value, left[0], coefficients[i]);
        values[row] = value;
        residuals[row] = multiply_add<kFused>(left[0], right[0], -(left[0] * right[0]));
    }
}

}  // namespace

extern "C" int fma_contraction(
    const float* x, const float* y, const float* coefficients, float* dots, float* values, float* residuals, int rows,
    int n, int fused, void* /*workspace*/, size_t /*workspace_bytes*/, void* /*queue*/) {
    if (rows <= 0 || n <= 0) return kUnsupportedShape;
    const auto kernel = fused ? run<true> : run<false>;
    kernel(x, y, coefficients, dots, values, residuals, rows, n);
    return kOk;
}
