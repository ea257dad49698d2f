// SPDX-License-Identifier: MIT
// Adds the fp32 planes of a product whose K was cut into parts, always in the same order: results repeat to the bit.
#pragma once

#include "tile/block_scaled_gemm.h"

constexpr int kSumThreads = 256;
constexpr int kSumElements = 4;  // per thread: one 16-byte load of each plane

/// c[i] = bf16(sum over parts of planes[part][i]) for all m * n elements.
__global__ void __launch_bounds__(kSumThreads)
    sum_planes(const float* __restrict__ planes, uint16_t* __restrict__ c, int m, int n, int parts) {
    const size_t total = static_cast<size_t>(m) * static_cast<size_t>(n);
    const size_t plane = plane_elements(m, n);
    const size_t first = (static_cast<size_t>(blockIdx.x) * kSumThreads + threadIdx.x) * kSumElements;
    if (first >= total) return;
    f32x4 sum = {};
#pragma unroll 4
    for (int part = 0; part < parts; ++part)
        sum += *reinterpret_cast<const f32x4*>(planes + static_cast<size_t>(part) * plane + first);
    if (first + kSumElements <= total) {
        *reinterpret_cast<u32x2*>(c + first) = u32x2{pack_bf16(sum[0], sum[1]), pack_bf16(sum[2], sum[3])};
        return;
    }
    for (int i = 0; first + static_cast<size_t>(i) < total; ++i) c[first + static_cast<size_t>(i)] = to_bf16(sum[i]);
}
