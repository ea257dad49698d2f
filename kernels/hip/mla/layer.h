// SPDX-License-Identifier: MIT
// What an MLA layer does between its projections and its attention: rotations, and the row that a step appends.
#pragma once

#include "isa/lanes.h"
#include "isa/math.h"
#include "isa/types.h"
#include "launch.h"
#include "rotation.h"
#include "tile/bf16.h"

struct LayerInputs {
    const uint16_t* q;    // [batch, heads, 192]: 128 columns that are not rotated, 64 that are
    uint16_t* queries;    // [batch, heads, 576]: the last 64 columns are written
    const uint16_t* row;  // [batch, 576], the newest token's
    uint16_t* cache;      // [batch, max_len, 576]: row `length` is written
    uint16_t* rotary;     // [batch, length + 1, 64]
    int batch, heads, length, max_len;
};

constexpr int kLayerThreads = 256;
constexpr int kRotatedTokens = 32;  // of a workgroup: eight threads to a token, four pairs of columns to a thread

__device__ __forceinline__ float low_bf16(uint32_t pair) { return __builtin_bit_cast(float, pair << 16); }
__device__ __forceinline__ float high_bf16(uint32_t pair) { return __builtin_bit_cast(float, pair & 0xffff0000u); }

/// Cosines and sines of four pairs of columns at one position, rounded to bf16.
struct Turns {
    float cosine[4], sine[4];

    __device__ __forceinline__ Turns(int position, int first_pair) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float turns = rope_angle(position, first_pair + i) * 0.15915494f;
            cosine[i] = low_bf16(to_bf16(cos_of_turns(turns)));
            sine[i] = low_bf16(to_bf16(sin_of_turns(turns)));
        }
    }

    /// Four values of columns i and four of columns i + 32: (a, b) becomes (a cos - b sin, b cos + a sin), rounded once.
    __device__ __forceinline__ void rotate(u32x2& first, u32x2& second) const {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const float a0 = low_bf16(first[i]), a1 = high_bf16(first[i]);
            const float b0 = low_bf16(second[i]), b1 = high_bf16(second[i]);
            const float c0 = cosine[2 * i], c1 = cosine[2 * i + 1], s0 = sine[2 * i], s1 = sine[2 * i + 1];
            first[i] = pack_bf16(a0 * c0 - b0 * s0, a1 * c1 - b1 * s1);
            second[i] = pack_bf16(b0 * c0 + a0 * s0, b1 * c1 + a1 * s1);
        }
    }
};

/// 64 columns at `from`, four pairs of which are this thread's, rotated to `to`.
__device__ __forceinline__ void rotate_columns(const uint16_t* from, uint16_t* to, const Turns& turns, int pair) {
    u32x2 first = *reinterpret_cast<const u32x2*>(from + pair);
    u32x2 second = *reinterpret_cast<const u32x2*>(from + 32 + pair);
    turns.rotate(first, second);
    *reinterpret_cast<u32x2*>(to + pair) = first;
    *reinterpret_cast<u32x2*>(to + 32 + pair) = second;
}

/// The rotary columns of 32 tokens of all requests; blockIdx.y takes every gridDim.y-th request.
__global__ void __launch_bounds__(kLayerThreads) rotate_cached(LayerInputs a) {
    const int token = static_cast<int>(blockIdx.x) * kRotatedTokens + static_cast<int>(threadIdx.x) / 8;
    const int pair = static_cast<int>(threadIdx.x) % 8 * 4;
    if (token > a.length) return;
    const Turns turns(token, pair);
    for (int request = static_cast<int>(blockIdx.y); request < a.batch; request += static_cast<int>(gridDim.y)) {
        const size_t r = static_cast<size_t>(request), t = static_cast<size_t>(token);
        const uint16_t* const from =
            token == a.length ? a.row + r * 576 : a.cache + (r * static_cast<size_t>(a.max_len) + t) * 576;
        rotate_columns(from + 512, a.rotary + (r * (static_cast<size_t>(a.length) + 1) + t) * 64, turns, pair);
    }
}

/// One request: its queries' rotary columns, rotated to the newest position, and its row of the cache.
__global__ void __launch_bounds__(kLayerThreads) rotate_queries(LayerInputs a) {
    const size_t request = blockIdx.x;
    const int thread = static_cast<int>(threadIdx.x), pair = thread % 8 * 4;
    const Turns turns(a.length, pair);
    for (int head = thread / 8; head < a.heads; head += kLayerThreads / 8) {
        const size_t row = request * static_cast<size_t>(a.heads) + static_cast<size_t>(head);
        rotate_columns(a.q + row * 192 + 128, a.queries + row * 576 + 512, turns, pair);
    }
    const size_t cached = request * static_cast<size_t>(a.max_len) + static_cast<size_t>(a.length);
    for (int word = thread; word < 576 / 8; word += kLayerThreads)
        reinterpret_cast<u32x4*>(a.cache + cached * 576)[word] =
            reinterpret_cast<const u32x4*>(a.row + request * 576)[word];
}

/// Both, one after the other. Returns the vendor's status.
inline int launch_rotations(const LayerInputs& a, void* queue) {
    constexpr int kRequestShares = 16;
    const dim3 cached(
        static_cast<unsigned>(a.length / kRotatedTokens + 1),
        static_cast<unsigned>(a.batch < kRequestShares ? a.batch : kRequestShares));
    LAUNCH(rotate_cached, cached, dim3(kLayerThreads), 0, queue)(a);
    LAUNCH(rotate_queries, dim3(static_cast<unsigned>(a.batch)), dim3(kLayerThreads), 0, queue)(a);
    return LAUNCH_STATUS();
}
