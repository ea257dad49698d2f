// SPDX-License-Identifier: MIT
// A masked softmax with a warp per row, and the copy that repeats KV heads, for both vendors.
//
// Rows of up to 8 packs a lane stay in registers between the maximum, the sum and the quotient, so that each score is read
// once; longer ones, and rows whose addresses are no multiples of 16 bytes, are read three times, the later ones from a cache.
// Scores that a query does not see are never used: they may be NaN.
#pragma once

#include <math.h>

#include "ceil_div.h"
#include "kernel.h"
#include "vendor.h"

struct Scores {
    const uint16_t *scores, *bias, *v;
    const int* lengths;
    uint16_t *p, *repeated;
    int batch, heads_q, heads_k, seqlen_q, seqlen_k, dim, bias_kind, causal;
};

constexpr int kSoftmaxThreads = 256, kSoftmaxRows = kSoftmaxThreads / kWarp, kPacks = 8;

__device__ __forceinline__ float exponential(float x) { return expf(x); }

/// kWide: 16 bytes a load, the row in registers.
template <bool kWide>
__global__ void __launch_bounds__(kSoftmaxThreads) softmax_kernel(Scores problem) {
    const long long row = static_cast<long long>(blockIdx.x) * kSoftmaxRows + threadIdx.x / kWarp;
    const int lane = static_cast<int>(threadIdx.x) % kWarp, keys = problem.seqlen_k;
    const long long per_request = static_cast<long long>(problem.heads_q) * problem.seqlen_q;
    if (row >= per_request * problem.batch) return;
    const int length = problem.lengths[row / per_request];
    const int limit = problem.causal ? static_cast<int>(row % problem.seqlen_q) + 1 + keys - problem.seqlen_q : keys;
    const int seen = limit < length ? (limit > 0 ? limit : 0) : length;
    const uint16_t* const from = problem.scores + row * keys;
    const uint16_t* const bias = problem.bias + (problem.bias_kind == 1 ? row % per_request : row) * keys;
    uint16_t* const to = problem.p + row * keys;
    const bool biased = problem.bias_kind != 0;
    const auto score = [&](int j) { return Half::load(from[j]) + (biased ? Half::load(bias[j]) : 0.0f); };

    if (!kWide) {
        float largest = -INFINITY;
        for (int j = lane; j < seen; j += kWarp) largest = fmaxf(largest, score(j));
        largest = reduce_warp(largest, Max());
        float sum = 0.0f;
        for (int j = lane; j < seen; j += kWarp) sum += exponential(score(j) - largest);
        const float inverse = 1.0f / reduce_warp(sum, Sum());
        for (int j = lane; j < keys; j += kWarp)
            to[j] = j < seen ? Half::store(exponential(score(j) - largest) * inverse) : uint16_t{0};
        return;
    }

    using Piece = Pack<Half>;
    constexpr int kCount = Piece::kCount;
    float held[kPacks][kCount];
    float largest = -INFINITY;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
        const int first = (k * kWarp + lane) * kCount;
        Piece left = {}, right = {};
        if (first < seen) {
            left = *reinterpret_cast<const Piece*>(from + first);
            if (biased) right = *reinterpret_cast<const Piece*>(bias + first);
        }
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
            const float value = Half::load(left.values[j]) + Half::load(right.values[j]);
            held[k][j] = first + j < seen ? value : -INFINITY;
            largest = fmaxf(largest, held[k][j]);
        }
    }
    largest = reduce_warp(largest, Max());
    const float shift = seen > 0 ? largest : 0.0f;  // -inf minus -inf would be NaN
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
            held[k][j] = exponential(held[k][j] - shift);
            sum += held[k][j];
        }
    }
    sum = reduce_warp(sum, Sum());
    const float inverse = seen > 0 ? 1.0f / sum : 0.0f;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
        const int first = (k * kWarp + lane) * kCount;
        if (first >= keys) continue;
        Piece out;
#pragma unroll
        for (int j = 0; j < kCount; ++j) out.values[j] = Half::store(held[k][j] * inverse);
        *reinterpret_cast<Piece*>(to + first) = out;
    }
}

/// Every head of v is written heads_q / heads_k times. The grid's y counts batch * heads_q.
template <bool kWide>
__global__ void __launch_bounds__(kSoftmaxThreads) repeat_kernel(Scores problem) {
    const long long size = static_cast<long long>(problem.seqlen_k) * problem.dim;
    const int request = static_cast<int>(blockIdx.y) / problem.heads_q,
              head = static_cast<int>(blockIdx.y) % problem.heads_q;
    const int source = request * problem.heads_k + head / (problem.heads_q / problem.heads_k);
    const uint16_t* const from = problem.v + source * size;
    uint16_t* const to = problem.repeated + static_cast<long long>(blockIdx.y) * size;
    const long long thread = static_cast<long long>(blockIdx.x) * kSoftmaxThreads + threadIdx.x;
    if constexpr (kWide) {
        using Piece = Pack<Half>;
        if (thread < size / Piece::kCount)
            reinterpret_cast<Piece*>(to)[thread] = reinterpret_cast<const Piece*>(from)[thread];
    } else {
        if (thread < size) to[thread] = from[thread];
    }
}

inline int launch_masked_softmax(const Scores& problem, void* queue) {
    const long long rows = static_cast<long long>(problem.batch) * problem.heads_q * problem.seqlen_q;
    const long long blocks = ceil_div<long long>(rows, kSoftmaxRows);
    if (problem.batch <= 0 || problem.heads_k <= 0 || problem.heads_q % problem.heads_k != 0 || problem.seqlen_q <= 0 ||
        problem.seqlen_k <= 0 || problem.dim <= 0 || problem.batch * problem.heads_q > 65535 || blocks > 0x7fffffff)
        return kUnsupportedShape;
    const bool wide = problem.seqlen_k % 8 == 0 && problem.seqlen_k <= 8 * kWarp * kPacks &&
                      is_aligned(problem.scores) && is_aligned(problem.p) &&
                      (problem.bias_kind == 0 || is_aligned(problem.bias));
    const auto kernel = wide ? softmax_kernel<true> : softmax_kernel<false>;
    LAUNCH(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kSoftmaxThreads), 0, queue)(problem);
    const long long size = static_cast<long long>(problem.seqlen_k) * problem.dim;
    const bool whole = size % 8 == 0 && is_aligned(problem.v) && is_aligned(problem.repeated);
    const auto repeat = whole ? repeat_kernel<true> : repeat_kernel<false>;
    const dim3 grid(
        static_cast<unsigned>(ceil_div<long long>(size / (whole ? 8 : 1), kSoftmaxThreads)),
        problem.batch * problem.heads_q);
    LAUNCH(repeat, grid, dim3(kSoftmaxThreads), 0, queue)(problem);
    return LAUNCH_STATUS();
}
