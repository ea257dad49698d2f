// SPDX-License-Identifier: MIT
// What the steps of the HIP attention ladder share: one head's rows, the mask, and the entry point of kernel.h.
//
// A step is a kernel that handles 64 query rows of one head per workgroup: bf16 or fp16 (Half: Bf16, Fp16), head_dim 64, any
// lengths, with or without causal mask. Each file changes one thing about the step before it.
#pragma once

#include "ceil_div.h"
#include "kernel.h"
#include "launch.h"

#include "tile/half.h"
#include "tile/scores.h"  // Exp2, online softmax

constexpr int kHeadDim = 64, kRows = 64;

template <class Half>
__device__ __forceinline__ uint16_t rounded(float x) {
    return static_cast<uint16_t>(Half::pack(x, 0.0f));
}

struct Step {
    const uint16_t *q, *k, *v;
    uint16_t* o;
    float* lse;
    int batch, queries, keys, heads, key_heads, causal;
    float scale;  // softmax_scale * log2(e)

    /// The head of this workgroup: blockIdx.y counts batch * heads + head.
    __device__ __forceinline__ int head() const { return static_cast<int>(blockIdx.y) % heads; }
    __device__ __forceinline__ int sequence() const { return static_cast<int>(blockIdx.y) / heads; }
    __device__ __forceinline__ size_t query_row(int i) const {
        return ((static_cast<size_t>(sequence()) * queries + i) * heads + head()) * kHeadDim;
    }
    __device__ __forceinline__ size_t key_row(int j) const {
        return ((static_cast<size_t>(sequence()) * keys + j) * key_heads + head() / (heads / key_heads)) * kHeadDim;
    }
    /// How many keys query i sees.
    __device__ __forceinline__ int seen(int i) const {
        if (!causal) return keys;
        const int limit = i + 1 + keys - queries;
        return limit < 0 ? 0 : limit < keys ? limit : keys;
    }
    /// How many keys the rows from `first` on see, at most.
    __device__ __forceinline__ int seen_by_tile(int first) const {
        return seen((queries < first + kRows ? queries : first + kRows) - 1);
    }
    __device__ __forceinline__ void store_lse(int i, const SoftmaxRow& row) const {
        lse[static_cast<size_t>(blockIdx.y) * queries + i] = row.lse(scale);
    }
};

template <class Kernel>
int launch_step(Kernel kernel, const Step& step, int threads, void* queue) {
    const dim3 grid(ceil_div(step.queries, kRows), step.batch * step.heads);
    LAUNCH(kernel, grid, dim3(threads), 0, queue)(step);
    return LAUNCH_STATUS();
}

/// Defines flash_attention() as one launch of `kernel`<Half>.
#define LADDER_STEP(kernel, threads)                                                                             \
    extern "C" int flash_attention(                                                                              \
        const void* q, const void* k, const void* v, void* o, float* lse, int batch, int seqlen_q, int seqlen_k, \
        int heads_q, int heads_k, int head_dim, int half, int causal, float softmax_scale, void*, size_t,        \
        void* queue) {                                                                                           \
        if (head_dim != kHeadDim || batch * heads_q > 65535) return kUnsupportedShape;                           \
        const Step step = {                                                                                      \
            static_cast<const uint16_t*>(q),                                                                     \
            static_cast<const uint16_t*>(k),                                                                     \
            static_cast<const uint16_t*>(v),                                                                     \
            static_cast<uint16_t*>(o),                                                                           \
            lse,                                                                                                 \
            batch,                                                                                               \
            seqlen_q,                                                                                            \
            seqlen_k,                                                                                            \
            heads_q,                                                                                             \
            heads_k,                                                                                             \
            causal,                                                                                              \
            softmax_scale * kLog2E};                                                                             \
        return half ? launch_step(kernel<Fp16>, step, threads, queue)                                            \
                    : launch_step(kernel<Bf16>, step, threads, queue);                                           \
    }
