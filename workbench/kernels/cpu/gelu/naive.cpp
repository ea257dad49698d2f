// SPDX-License-Identifier: MIT
//!KERNEL summary GELU in plain loops
//
// The readable statement of what the GPU kernels compute. One thread, no workspace.
#include "kernel.h"

#include <math.h>

#include "fp8.h"
#include "status.h"

extern "C" int gelu(
    const void* x, void* y, long long n, int tanh_form, void* /*workspace*/, size_t /*workspace_bytes*/,
    void* /*queue*/) {
    if (n <= 0) return kUnsupportedShape;
    for (long long i = 0; i < n; ++i) {
        const float value = fp16_to_float(static_cast<const uint16_t*>(x)[i]);
        float result = 0.0f;  // the limit at -inf
        if (value != -INFINITY && tanh_form) {
            const float u = 0.7978845608028654f * (value + 0.044715f * value * value * value);
            result = value / (1.0f + expf(-2.0f * u));
        } else if (value != -INFINITY) {
            result = 0.5f * value * erfcf(-0.7071067811865476f * value);
        }
        static_cast<uint16_t*>(y)[i] = float_to_fp16(result);
    }
    return kOk;
}
