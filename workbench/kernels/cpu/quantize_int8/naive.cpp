// SPDX-License-Identifier: MIT
//!KERNEL summary int8 codes in plain loops
//
// The readable statement of what the GPU kernels compute. One thread, no workspace.
#include "kernel.h"

#include <math.h>

#include "fp8.h"
#include "status.h"

extern "C" int quantize_int8(
    const void* x, signed char* q, float* scale, int* zero, long long n, int symmetric, void* /*workspace*/,
    size_t /*workspace_bytes*/, void* /*queue*/) {
    if (n <= 0) return kUnsupportedShape;
    const uint16_t* from = static_cast<const uint16_t*>(x);
    float low = 0.0f, high = 0.0f;
    for (long long i = 0; i < n; ++i) {
        const float value = fp16_to_float(from[i]);
        low = fminf(low, value);
        high = fmaxf(high, value);
    }
    const float range = symmetric ? fmaxf(-low, high) : high - low;
    *scale = range == 0.0f ? 1.0f : range / (symmetric ? 127.0f : 255.0f);
    *zero = symmetric ? 0 : static_cast<int>(rintf(-low / *scale)) - 128;
    for (long long i = 0; i < n; ++i) {
        const int code = static_cast<int>(rintf(fp16_to_float(from[i]) / *scale)) + *zero;
        q[i] = static_cast<signed char>(code < -128 ? -128 : code > 127 ? 127 : code);
    }
    return kOk;
}
