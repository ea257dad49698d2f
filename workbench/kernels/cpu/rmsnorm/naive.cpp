// SPDX-License-Identifier: MIT
//!KERNEL summary RMSNorm in plain loops
//
// The kernel that runs anywhere, and the readable statement of what the GPU kernels compute. One thread, no workspace.
#include "kernel.h"

#include <math.h>

#include "fp8.h"
#include "status.h"

extern "C" int rmsnorm(
    const void* x, const void* weight, void* y, int rows, int width, int bfloat, float eps, void* /*workspace*/,
    size_t /*workspace_bytes*/, void* /*queue*/) {
    if (rows <= 0 || width <= 0) return kUnsupportedShape;
    const auto load = [bfloat](const void* from, size_t i) {
        return bfloat ? bf16_to_float(static_cast<const uint16_t*>(from)[i]) : static_cast<const float*>(from)[i];
    };
    const size_t columns = static_cast<size_t>(width);
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
        double sum = 0.0;
        for (size_t i = row * columns; i < (row + 1) * columns; ++i) {
            const double value = load(x, i);
            sum += value * value;
        }
        const float factor = 1.0f / sqrtf(static_cast<float>(sum / width) + eps);
        for (size_t i = 0; i < columns; ++i) {
            const float value = load(x, row * columns + i) * factor * load(weight, i);
            if (bfloat) static_cast<uint16_t*>(y)[row * columns + i] = float_to_bf16(value);
            else static_cast<float*>(y)[row * columns + i] = value;
        }
    }
    return kOk;
}
