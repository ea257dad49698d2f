// SPDX-License-Identifier: MIT
// fp16 to int8 with one scale per tensor, for both vendors, in two launches: extremes by block, then codes. Every block of
// the second launch reduces the first one's results itself; that is cheaper than a third launch.
#pragma once

#include <math.h>

#include "ceil_div.h"
#include "kernel.h"
#include "vendor.h"

constexpr int kQuantThreads = 256, kQuantBlocks = 1024;

struct Min {
    static constexpr float kNeutral = INFINITY;
    __device__ __forceinline__ float operator()(float a, float b) const { return fminf(a, b); }
};

/// Calls use(value, index) for all elements that are this thread's, 16 bytes a load where addresses allow.
template <class Use>
__device__ __forceinline__ void for_each_pack(const uint16_t* x, long long n, Use use) {
    using Piece = Pack<Half>;
    const long long thread = static_cast<long long>(blockIdx.x) * kQuantThreads + threadIdx.x;
    const long long threads = static_cast<long long>(gridDim.x) * kQuantThreads;
    const long long packs = is_aligned(x) ? n / Piece::kCount : 0;
    for (long long i = thread; i < packs; i += threads) use(reinterpret_cast<const Piece*>(x)[i], i);
    for (long long i = packs * Piece::kCount + thread; i < n; i += threads) {
        Piece one = {};
        one.values[0] = x[i];
        use(one, -1 - i);  // a single element
    }
}

/// extremes[block] and extremes[blocks + block]: the least and the largest of 0 and a block's elements.
__global__ void __launch_bounds__(kQuantThreads) find_extremes(const uint16_t* x, float* extremes, long long n) {
    __shared__ float scratch[kQuantThreads / kWarp];
    float low = 0.0f, high = 0.0f;
    for_each_pack(x, n, [&](const Pack<Half>& piece, long long) {
#pragma unroll
        for (int j = 0; j < Pack<Half>::kCount; ++j) {
            const float value = Half::load(piece.values[j]);
            low = fminf(low, value);
            high = fmaxf(high, value);
        }
    });
    low = reduce_block<kQuantThreads>(low, scratch, Min());
    high = reduce_block<kQuantThreads>(high, scratch, Max());
    if (threadIdx.x == 0) {
        extremes[blockIdx.x] = low;
        extremes[gridDim.x + blockIdx.x] = high;
    }
}

struct Codes {
    float scale;
    int zero;

    __device__ __forceinline__ static Codes of(float low, float high, bool symmetric) {
        const float range = symmetric ? fmaxf(-low, high) : high - low;
        const float scale = range == 0.0f ? 1.0f : range / (symmetric ? 127.0f : 255.0f);
        return {scale, symmetric ? 0 : static_cast<int>(rintf(-low / scale)) - 128};
    }
    __device__ __forceinline__ signed char of(uint16_t bits) const {
        const int code = static_cast<int>(rintf(Half::load(bits) / scale)) + zero;
        return static_cast<signed char>(code < -128 ? -128 : code > 127 ? 127 : code);
    }
};

__global__ void __launch_bounds__(kQuantThreads) write_codes(
    const uint16_t* x, const float* extremes, int blocks, signed char* q, float* scale, int* zero, long long n,
    int symmetric) {
    __shared__ float scratch[kQuantThreads / kWarp];
    float low = 0.0f, high = 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < blocks; i += kQuantThreads) {
        low = fminf(low, extremes[i]);
        high = fmaxf(high, extremes[blocks + i]);
    }
    low = reduce_block<kQuantThreads>(low, scratch, Min());
    high = reduce_block<kQuantThreads>(high, scratch, Max());
    const Codes codes = Codes::of(low, high, symmetric != 0);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        *scale = codes.scale;
        *zero = codes.zero;
    }
    const bool wide = reinterpret_cast<size_t>(q) % 8 == 0;
    for_each_pack(x, n, [&](const Pack<Half>& piece, long long i) {
        if (i < 0) {
            q[-1 - i] = codes.of(piece.values[0]);
            return;
        }
        struct alignas(8) {
            signed char values[8];
        } out;
#pragma unroll
        for (int j = 0; j < 8; ++j) out.values[j] = codes.of(piece.values[j]);
        if (wide) *reinterpret_cast<decltype(out)*>(q + 8 * i) = out;
        else
            for (int j = 0; j < 8; ++j) q[8 * i + j] = out.values[j];
    });
}

inline int launch_quantize(
    const void* x, signed char* q, float* scale, int* zero, long long n, int symmetric, void* workspace, size_t bytes,
    void* queue) {
    if (n <= 0) return kUnsupportedShape;
    const long long wanted = ceil_div<long long>(n, 8LL * kQuantThreads);
    const int blocks = wanted < kQuantBlocks ? static_cast<int>(wanted) : kQuantBlocks;
    if (bytes < 2 * sizeof(float) * static_cast<size_t>(blocks)) return kWorkspaceTooSmall;
    float* const extremes = static_cast<float*>(workspace);
    const uint16_t* const from = static_cast<const uint16_t*>(x);
    LAUNCH(find_extremes, dim3(blocks), dim3(kQuantThreads), 0, queue)(from, extremes, n);
    LAUNCH(write_codes, dim3(blocks), dim3(kQuantThreads), 0, queue)
    (from, extremes, blocks, q, scale, zero, n, symmetric);
    return LAUNCH_STATUS();
}
