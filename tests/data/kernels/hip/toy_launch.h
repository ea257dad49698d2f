// SPDX-License-Identifier: MIT
// What all toy kernels for AMD GPUs share: the entry point around one launch of `scale`, which each file defines.
#ifndef WARPWAVE_TOY_LAUNCH_H
#define WARPWAVE_TOY_LAUNCH_H
#include <hip/hip_runtime.h>

#include "kernel.h"

#define TOY(threads)                                                                                                \
    extern "C" int toy(const float* x, float* y, int n, float alpha, void*, size_t, void*) {                        \
        scale<<<(n + (threads) - 1) / (threads), (threads)>>>(x, y, n, alpha);                                      \
        return static_cast<int>(hipGetLastError());                                                                 \
    }

#endif
