// SPDX-License-Identifier: MIT
//!KERNEL arch gfx942
// A product of bf16 matrices by fp8_gemm's loop, to be timed beside those of others: c = a b^T, [m, k] by [n, k] with k a
// multiple of 64, n of 8.

#include "tile/innermost_launch.h"

#ifndef TILE_ROWS
#define TILE_ROWS 0
#endif
#ifndef COMPUTE_UNITS
#define COMPUTE_UNITS kComputeUnits
#endif

extern "C" int bf16_product(const void* a, const void* b, void* c, int m, int n, int k) {
    BlockScaledGemm problem = {};
    problem.a = static_cast<const uint8_t*>(a);
    problem.b = static_cast<const uint8_t*>(b);
    problem.c = static_cast<uint16_t*>(c);
    problem.m = m, problem.n = n, problem.k = 2 * k;
    return launch_innermost<Bf16Sums>(problem, 1, TILE_ROWS, COMPUTE_UNITS, nullptr);
}
