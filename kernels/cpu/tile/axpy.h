// SPDX-License-Identifier: MIT
// The one inner loop of the CPU kernels: y += a · x over a constant length.
//
// A constant length lets a compiler at -O2 turn it into vector instructions; a dot product would not be turned, as that
// reorders a floating-point sum.
#pragma once

template <int N>
inline void axpy(float* __restrict__ y, float a, const float* __restrict__ x) {
    for (int i = 0; i < N; ++i) y[i] += a * x[i];
}
