// SPDX-License-Identifier: MIT
// y = A x in fp32 in two steps, for both vendors: a warp per row, and long rows cut into parts.
#pragma once

#include "ceil_div.h"
#include "kernel.h"
#include "vendor.h"

constexpr int kGemvThreads = 256, kGemvRows = kGemvThreads / kWarp;

/// The dot product of `count` elements, in every lane of the warp. `wide`: both pointers are multiples of 16 bytes.
__device__ __forceinline__ float dot_by_warp(const float* a, const float* x, int count, bool wide) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    float sums[4] = {};  // four chains: independent additions, and shorter sums
    int done = 0;
    if (wide) {
        done = count / 4 * 4;
        for (int i = lane * 4; i < done; i += kWarp * 4) {
            const Pack<Float> left = *reinterpret_cast<const Pack<Float>*>(a + i);
            const Pack<Float> right = *reinterpret_cast<const Pack<Float>*>(x + i);
#pragma unroll
            for (int j = 0; j < 4; ++j) sums[j] += left.values[j] * right.values[j];
        }
    }
    for (int i = done + lane; i < count; i += kWarp) sums[0] += a[i] * x[i];
    return reduce_warp((sums[0] + sums[1]) + (sums[2] + sums[3]), Sum());
}

/// Grid: rows / kGemvRows by parts of a row. One part writes y, several write [parts, m] partial sums.
__global__ void __launch_bounds__(kGemvThreads)
    gemv_parts(const float* a, const float* x, float* to, int m, int n, int part) {
    const int row = static_cast<int>(blockIdx.x) * kGemvRows + static_cast<int>(threadIdx.x) / kWarp;
    const int first = static_cast<int>(blockIdx.y) * part, left = n - first;
    if (row >= m) return;
    const float* from = a + static_cast<size_t>(row) * static_cast<size_t>(n) + first;
    const bool wide = n % 4 == 0 && part % 4 == 0 && is_aligned(a) && is_aligned(x);
    const float sum = dot_by_warp(from, x + first, left < part ? left : part, wide);
    if (threadIdx.x % kWarp == 0) to[static_cast<size_t>(blockIdx.y) * static_cast<size_t>(m) + row] = sum;
}

/// y[row] = sum over the parts, in their order.
__global__ void __launch_bounds__(kGemvThreads) gemv_add(const float* partial, float* y, int m, int parts) {
    const int row = static_cast<int>(blockIdx.x) * kGemvThreads + static_cast<int>(threadIdx.x);
    if (row >= m) return;
    float sum = 0.0f;
    for (int i = 0; i < parts; ++i) sum += partial[static_cast<size_t>(i) * static_cast<size_t>(m) + row];
    y[row] = sum;
}

inline int launch_gemv(
    const float* a, const float* x, float* y, int m, int n, int parts, void* workspace, size_t bytes, void* queue) {
    if (m <= 0 || n <= 0) return kUnsupportedShape;
    const int part = ceil_div(ceil_div(n, parts), 4) * 4;
    parts = ceil_div(n, part);
    if (parts > 1 && bytes < sizeof(float) * static_cast<size_t>(parts) * static_cast<size_t>(m))
        return kWorkspaceTooSmall;
    float* const to = parts > 1 ? static_cast<float*>(workspace) : y;
    const dim3 grid(ceil_div(m, kGemvRows), parts);
    LAUNCH(gemv_parts, grid, dim3(kGemvThreads), 0, queue)(a, x, to, m, n, part);
    if (parts > 1) LAUNCH(gemv_add, dim3(ceil_div(m, kGemvThreads)), dim3(kGemvThreads), 0, queue)(to, y, m, parts);
    return LAUNCH_STATUS();
}
