// SPDX-License-Identifier: MIT
// Adds the fp32 planes of a product whose K was split over several blocks, always in the same order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tile/block_scaled_gemm.h"

constexpr int kSumThreads = 128;
constexpr int kSumColumns = 4;   // per thread: one 16-byte load of each plane

/// c[i, j] = bf16(sum over s of planes[s][i][j]). One thread sums four adjacent columns; the grid covers m * pitch / 4.
__global__ void __launch_bounds__(kSumThreads) sum_planes(
    const float* __restrict__ planes, uint16_t* __restrict__ c, int m, int n, int splits) {
    const int pitch = plane_pitch(n);
    const size_t element = (static_cast<size_t>(blockIdx.x) * kSumThreads + threadIdx.x) * kSumColumns;
    const size_t plane = static_cast<size_t>(m) * pitch;
    if (element >= plane) return;
    const int row = static_cast<int>(element / pitch);
    const int column = static_cast<int>(element - static_cast<size_t>(row) * pitch);
    if (column >= n) return;

    const float4* source = reinterpret_cast<const float4*>(planes + element);
    float run[kSumColumns] = {};
#pragma unroll 8
    for (int s = 0; s < splits; ++s) {
        const float4 part = source[s * (plane / kSumColumns)];
        run[0] += part.x;
        run[1] += part.y;
        run[2] += part.z;
        run[3] += part.w;
    }
    store_bf16(c + static_cast<size_t>(row) * n + column, run, n - column, n % kSumColumns == 0);
}
