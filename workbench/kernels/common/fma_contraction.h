// SPDX-License-Identifier: MIT
// One source for fused and unfused arithmetic: the compiler decides by the flags of the file that includes this, and FUSED
// says what they ask for.
#pragma once

#include "ceil_div.h"
#include "kernel.h"
#include "vendor.h"

/// The same value, of which the compiler knows nothing: else it might find that a * b - a * b is 0.
__device__ __forceinline__ float hidden(float value) {
#if defined(__HIP_DEVICE_COMPILE__)
    asm volatile("" : "+v"(value));
#elif defined(__CUDA_ARCH__)
    asm volatile("" : "+f"(value));
#endif
    return value;
}

__global__ void contraction_kernel(
    const float* x, const float* y, const float* coefficients, float* dots, float* values, float* residuals, int rows,
    int n) {
    const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (row >= rows) return;
    const float* const left = x + static_cast<size_t>(row) * n;
    const float* const right = y + static_cast<size_t>(row) * n;
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum = left[i] * right[i] + sum;
    dots[row] = sum;
    float value = coefficients[7];
#pragma unroll
    for (int i = 6; i >= 0; --i) value = value * left[0] + coefficients[i];
    values[row] = value;
    // Two products, not one that is used twice, and a sum: the compiler's first half (to PTX, which emulators run) fuses that.
    const float negative = hidden(-(left[0] * right[0]));
    residuals[row] = hidden(left[0]) * right[0] + negative;
}

extern "C" int fma_contraction(
    const float* x, const float* y, const float* coefficients, float* dots, float* values, float* residuals, int rows,
    int n, int fused, void* /*workspace*/, size_t /*workspace_bytes*/, void* queue) {
    if (rows <= 0 || n <= 0 || fused != FUSED) return kUnsupportedShape;
    LAUNCH(contraction_kernel, dim3(ceil_div(rows, 128)), dim3(128), 0, queue)
    (x, y, coefficients, dots, values, residuals, rows, n);
    return LAUNCH_STATUS();
}
