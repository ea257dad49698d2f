// SPDX-License-Identifier: MIT
// GELU in two steps, for both vendors: one element a thread, and 16 bytes a thread.
#pragma once

#include <math.h>

#include "ceil_div.h"
#include "kernel.h"
#include "vendor.h"

/// y = x Phi(x). erfc and the exponential keep their digits where 1 + erf and 1 + tanh lose them, at negative x.
template <bool kTanh>
__device__ __forceinline__ float gelu_of(float x) {
    if (x == -INFINITY) return 0.0f;
    if (kTanh) {
        // 0.5 (1 + tanh u) = 1 / (1 + exp(-2u))
        const float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
        return x / (1.0f + expf(-2.0f * u));
    }
    return 0.5f * x * erfcf(-0.7071067811865476f * x);
}

constexpr int kGeluThreads = 256;

template <bool kTanh>
__global__ void __launch_bounds__(kGeluThreads) gelu_scalar(const uint16_t* x, uint16_t* y, long long n) {
    const long long i = static_cast<long long>(blockIdx.x) * kGeluThreads + threadIdx.x;
    if (i < n) y[i] = Half::store(gelu_of<kTanh>(Half::load(x[i])));
}

/// The last block takes the tail element by element.
template <bool kTanh>
__global__ void __launch_bounds__(kGeluThreads) gelu_vector(const uint16_t* x, uint16_t* y, long long n) {
    using Piece = Pack<Half>;
    const long long first = (static_cast<long long>(blockIdx.x) * kGeluThreads + threadIdx.x) * Piece::kCount;
    if (first + Piece::kCount <= n) {
        const Piece in = *reinterpret_cast<const Piece*>(x + first);
        Piece out;
#pragma unroll
        for (int j = 0; j < Piece::kCount; ++j) out.values[j] = Half::store(gelu_of<kTanh>(Half::load(in.values[j])));
        *reinterpret_cast<Piece*>(y + first) = out;
        return;
    }
    for (long long i = first; i < n; ++i) y[i] = Half::store(gelu_of<kTanh>(Half::load(x[i])));
}

using GeluKernel = void (*)(const uint16_t*, uint16_t*, long long);

/// Launch `kernel` with `each` elements a thread.
inline int launch_gelu(GeluKernel kernel, int each, const void* x, void* y, long long n, void* queue) {
    const long long blocks = ceil_div<long long>(n, static_cast<long long>(each) * kGeluThreads);
    if (n <= 0 || blocks > 0x7fffffff) return kUnsupportedShape;
    LAUNCH(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kGeluThreads), 0, queue)
    (static_cast<const uint16_t*>(x), static_cast<uint16_t*>(y), n);
    return LAUNCH_STATUS();
}
