// SPDX-License-Identifier: MIT
// The products of tile/library_product.h by a kernel of our own, one output to a thread: slow, and nothing of it hidden from
// tools. (compute-sanitizer's racecheck does not get past the vendor's library: benchmarks/amd_mla_decode.md.)
#pragma once

#include <cstdint>

#include "ceil_div.h"
#include "launch.h"
#include "ptx/mma_16bit.h"
#include "tile/library_product.h"

constexpr int kPlainThreads = 128;

/// Element (blockIdx.y, column) of product blockIdx.z; sums in fp32, in the order of k.
__global__ void __launch_bounds__(kPlainThreads) plain_product(const __grid_constant__ LibraryProduct p) {
    const int column = static_cast<int>(blockIdx.x) * kPlainThreads + static_cast<int>(threadIdx.x);
    if (column >= p.n) return;
    const long long product = blockIdx.z, row = blockIdx.y;
    const uint16_t* const x = static_cast<const uint16_t*>(p.x) + product * p.x_step + row * p.x_pitch;
    const uint16_t* const w = static_cast<const uint16_t*>(p.w) + product * p.w_step + (p.plain ? column : column * p.w_pitch);
    const long long next = p.plain ? p.w_pitch : 1;
    float sum = 0.0f;
    for (int k = 0; k < p.k; ++k) {
        sum += __uint_as_float(static_cast<uint32_t>(x[k]) << 16) * __uint_as_float(static_cast<uint32_t>(w[k * next]) << 16);
    }
    static_cast<uint16_t*>(p.y)[product * p.y_step + row * p.y_pitch + column] = static_cast<uint16_t>(Bf16::pack(sum, 0.0f));
}

/// Returns the vendor's status.
inline int launch_plain_product(const LibraryProduct& p, void* queue) {
    const dim3 grid(
        static_cast<unsigned>(ceil_div(p.n, kPlainThreads)), static_cast<unsigned>(p.m), static_cast<unsigned>(p.count));
    LAUNCH(plain_product, grid, dim3(kPlainThreads), 0, queue)(p);
    return LAUNCH_STATUS();
}
