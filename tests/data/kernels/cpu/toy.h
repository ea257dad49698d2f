// SPDX-License-Identifier: MIT
// What all toy kernels share: the right answer, which most of them give before they misbehave.
#ifndef WARPWAVE_TOY_KERNELS_H
#define WARPWAVE_TOY_KERNELS_H
#include "kernel.h"

#define TOY                                                                                                         \
    extern "C" int toy(const float* x, float* y, int n, float alpha, void* workspace, size_t workspace_bytes,       \
                       void* queue)

static inline void honest(const float* x, float* y, int n, float alpha) {
    for (int i = 0; i < n; ++i) y[i] = alpha * x[i];
}

#endif
