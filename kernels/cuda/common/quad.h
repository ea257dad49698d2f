// SPDX-License-Identifier: MIT
// What the four lanes that share a row of an accumulator (a quad: lanes 4g .. 4g + 3) do together.
#pragma once

#include <cstdint>

/// Maximum (or sum) over the four lanes that share a row of an accumulator.
__device__ __forceinline__ float quad_maximum(float x) {
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/// Exchange between the four lanes of a quad: lane t gets as d[i] what lane i had as d[t].
__device__ __forceinline__ void transpose_quad(uint32_t (&d)[4], int lane) {
    const bool odd = lane % 2 != 0, upper = lane % 4 >= 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? d[i] : d[i + 1], 1);
        if (odd) d[i] = got;
        else d[i + 1] = got;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? d[i] : d[i + 2], 2);
        if (upper) d[i] = got;
        else d[i + 2] = got;
    }
}
