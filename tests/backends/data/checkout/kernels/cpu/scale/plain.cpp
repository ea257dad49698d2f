// SPDX-License-Identifier: MIT
//!KERNEL summary One loop.
//!KERNEL tune BIAS=0,100
#include "kernel.h"
#include "status.h"

extern "C" int scale(const float* x, float* y, int n, float factor, void*, size_t workspace_bytes, void*) {
    if (n < 1) return kUnsupportedShape;
    for (int i = 0; i < n; ++i) y[i] = factor * x[i] + BIAS;
    return static_cast<int>(workspace_bytes);
}
