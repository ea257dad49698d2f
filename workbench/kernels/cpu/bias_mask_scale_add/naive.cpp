// SPDX-License-Identifier: MIT
//!KERNEL summary bias, mask, scale and residual in plain loops
//
// The readable statement of what the GPU kernels compute. One thread, no workspace.
#include "kernel.h"

#include "fp8.h"
#include "status.h"

extern "C" int bias_mask_scale_add(
    const void* x, const void* residual, const void* bias, const unsigned char* mask, void* y, int rows, int width,
    float scale, void* /*workspace*/, size_t /*workspace_bytes*/, void* /*queue*/) {
    if (rows <= 0 || width <= 0) return kUnsupportedShape;
    const auto load = [](const void* from, size_t i) { return fp16_to_float(static_cast<const uint16_t*>(from)[i]); };
    const size_t columns = static_cast<size_t>(width);
    for (size_t i = 0; i < static_cast<size_t>(rows) * columns; ++i) {
        const float sum = (load(x, i) + load(bias, i % columns)) * scale + load(residual, i);
        // A select, not a product: 0 times infinity is NaN.
        static_cast<uint16_t*>(y)[i] = mask[i] ? float_to_fp16(sum) : static_cast<const uint16_t*>(residual)[i];
    }
    return kOk;
}
