// SPDX-License-Identifier: MIT
// RMSNorm in four steps, for both vendors: who takes a row, and how many bytes a load has.
//
// Each reads a row twice, once to sum squares and once to scale; the second time it comes from a cache, but for the last
// step, which keeps it in registers. A file names one of the steps in its entry point.
#pragma once

#include <math.h>

#include "ceil_div.h"
#include "kernel.h"
#include "vendor.h"

struct Rows {
    const void *x, *weight;
    void* y;
    int rows, width;
    float eps;
};

/// y = x * factor * weight of element i of a row.
template <class Element>
__device__ __forceinline__ void scale_one(const Rows& problem, size_t row, int i, float factor) {
    using Bits = typename Element::Bits;
    const size_t at = row * static_cast<size_t>(problem.width) + static_cast<size_t>(i);
    const float x = Element::load(static_cast<const Bits*>(problem.x)[at]);
    const float weight = Element::load(static_cast<const Bits*>(problem.weight)[i]);
    static_cast<Bits*>(problem.y)[at] = Element::store(x * factor * weight);
}

template <class Element>
__device__ __forceinline__ float square_of(const Rows& problem, size_t row, int i) {
    const size_t at = row * static_cast<size_t>(problem.width) + static_cast<size_t>(i);
    const float x = Element::load(static_cast<const typename Element::Bits*>(problem.x)[at]);
    return x * x;
}

__device__ __forceinline__ float factor_of(const Rows& problem, float sum) {
    return 1.0f / sqrtf(sum / static_cast<float>(problem.width) + problem.eps);
}

/// Step 1: a thread per row. Neighbouring threads read addresses a row apart: one sector of 32 bytes each.
template <class Element>
struct ThreadPerRow {
    static constexpr int kThreads = 64, kRows = 64;
    static __device__ void run(const Rows& problem) {
        const size_t row = static_cast<size_t>(blockIdx.x) * kThreads + threadIdx.x;
        if (row >= static_cast<size_t>(problem.rows)) return;
        float sums[4] = {};  // one running sum of thousands of squares would drift
        for (int i = 0; i < problem.width; ++i) sums[i % 4] += square_of<Element>(problem, row, i);
        const float factor = factor_of(problem, (sums[0] + sums[1]) + (sums[2] + sums[3]));
        for (int i = 0; i < problem.width; ++i) scale_one<Element>(problem, row, i, factor);
    }
};

/// Step 2: a warp per row. Neighbouring lanes read neighbouring elements.
template <class Element>
struct WarpPerRow {
    static constexpr int kThreads = 256, kRows = kThreads / kWarp;
    static __device__ void run(const Rows& problem) {
        const size_t row = static_cast<size_t>(blockIdx.x) * kRows + threadIdx.x / kWarp;
        const int lane = static_cast<int>(threadIdx.x) % kWarp;
        if (row >= static_cast<size_t>(problem.rows)) return;
        float sum = 0.0f;
        for (int i = lane; i < problem.width; i += kWarp) sum += square_of<Element>(problem, row, i);
        const float factor = factor_of(problem, reduce_warp(sum, Sum()));
        for (int i = lane; i < problem.width; i += kWarp) scale_one<Element>(problem, row, i, factor);
    }
};

/// Step 3: a block per row, so that a few long rows fill more of the GPU.
template <class Element>
struct BlockPerRow {
    static constexpr int kThreads = 256, kRows = 1;
    static __device__ void run(const Rows& problem) {
        __shared__ float scratch[kThreads / kWarp];
        const size_t row = blockIdx.x;
        const int thread = static_cast<int>(threadIdx.x);
        float sum = 0.0f;
        for (int i = thread; i < problem.width; i += kThreads) sum += square_of<Element>(problem, row, i);
        const float factor = factor_of(problem, reduce_block<kThreads>(sum, scratch, Sum()));
        for (int i = thread; i < problem.width; i += kThreads) scale_one<Element>(problem, row, i, factor);
    }
};

/// Step 4: a block per row, 16 bytes a load, and the row stays in registers between the sum and the product. Rows that do
/// not fit there, or whose addresses are no multiples of 16 bytes, take step 3's way.
template <class Element>
struct VectorPerRow {
    static constexpr int kThreads = 256, kRows = 1, kPacks = 4;
    static __device__ void run(const Rows& problem) {
        using Piece = Pack<Element>;
        const int packs = problem.width / Piece::kCount, thread = static_cast<int>(threadIdx.x);
        if (problem.width % Piece::kCount != 0 || packs > kPacks * kThreads || !is_aligned(problem.x) ||
            !is_aligned(problem.weight) || !is_aligned(problem.y)) {
            BlockPerRow<Element>::run(problem);
            return;
        }
        __shared__ float scratch[kThreads / kWarp];
        const size_t first = static_cast<size_t>(blockIdx.x) * static_cast<size_t>(packs);
        const Piece* x = static_cast<const Piece*>(problem.x) + first;
        Piece held[kPacks];
        float sum = 0.0f;
#pragma unroll
        for (int k = 0; k < kPacks; ++k) {
            const int i = k * kThreads + thread;
            if (i >= packs) continue;
            held[k] = x[i];
#pragma unroll
            for (int j = 0; j < Piece::kCount; ++j) {
                const float value = Element::load(held[k].values[j]);
                sum += value * value;
            }
        }
        const float factor = factor_of(problem, reduce_block<kThreads>(sum, scratch, Sum()));
        const Piece* weights = static_cast<const Piece*>(problem.weight);
        Piece* y = static_cast<Piece*>(problem.y) + first;
#pragma unroll
        for (int k = 0; k < kPacks; ++k) {
            const int i = k * kThreads + thread;
            if (i >= packs) continue;
            const Piece weight = weights[i];
            Piece out;
#pragma unroll
            for (int j = 0; j < Piece::kCount; ++j) {
                const float value = Element::load(held[k].values[j]) * factor;
                out.values[j] = Element::store(value * Element::load(weight.values[j]));
            }
            y[i] = out;
        }
    }
};

template <class Step>
__global__ void __launch_bounds__(Step::kThreads) rmsnorm_kernel(Rows problem) {
    Step::run(problem);
}

template <class Step>
int launch_rmsnorm(const Rows& problem, void* queue) {
    const auto kernel = rmsnorm_kernel<Step>;
    LAUNCH(kernel, dim3(ceil_div(problem.rows, Step::kRows)), dim3(Step::kThreads), 0, queue)(problem);
    return LAUNCH_STATUS();
}

/// Defines rmsnorm() as one launch of `Step` of the elements' type.
#define RMSNORM_STEP(Step)                                                                                          \
    extern "C" int rmsnorm(                                                                                         \
        const void* x, const void* weight, void* y, int rows, int width, int bfloat, float eps, void*, size_t,      \
        void* queue) {                                                                                              \
        if (rows <= 0 || width <= 0) return kUnsupportedShape;                                                      \
        const Rows problem = {x, weight, y, rows, width, eps};                                                      \
        return bfloat ? launch_rmsnorm<Step<Bfloat>>(problem, queue) : launch_rmsnorm<Step<Float>>(problem, queue); \
    }
