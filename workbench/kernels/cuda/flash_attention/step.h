// SPDX-License-Identifier: MIT
// What the steps of the attention ladder share: one head's rows, the mask, and the entry point of kernel.h.
//
// A step is a kernel that handles a tile of query rows of one head per block: bf16, head_dim 64, any lengths, with or without
// causal mask. Each file changes one thing about the step before it.
#pragma once

#include <cuda_bf16.h>

#include "ceil_div.h"
#include "kernel.h"
#include "launch.h"
#include "online_softmax.h"
#include "ptx/math.h"

constexpr int kHeadDim = 64;

struct Step {
    const __nv_bfloat16 *q, *k, *v;
    __nv_bfloat16* o;
    float* lse;
    int batch, queries, keys, heads, key_heads, causal;
    float scale;  // softmax_scale * log2(e)

    /// The head of this block: blockIdx.y counts batch * heads + head.
    __device__ int head() const { return blockIdx.y % heads; }
    __device__ int sequence() const { return blockIdx.y / heads; }
    __device__ size_t query_row(int i) const {
        return ((static_cast<size_t>(sequence()) * queries + i) * heads + head()) * kHeadDim;
    }
    __device__ size_t key_row(int j) const {
        return ((static_cast<size_t>(sequence()) * keys + j) * key_heads + head() / (heads / key_heads)) * kHeadDim;
    }
    /// How many keys query i sees.
    __device__ int seen(int i) const { return causal ? max(0, min(keys, i + 1 + keys - queries)) : keys; }
    /// How many keys a tile of `rows` queries from `first` on sees, at most.
    __device__ int seen_by_tile(int first, int rows) const { return seen(min(queries, first + rows) - 1); }
    __device__ void store_lse(int i, const SoftmaxRow& row) const {
        lse[static_cast<size_t>(blockIdx.y) * queries + i] = row.lse(scale);
    }
};

/// Launch `kernel` with a block of `threads` per `rows` queries and head.
template <class Kernel>
int launch_step(Kernel kernel, Step step, int rows, int threads, int shared_bytes, void* queue) {
    const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (status != cudaSuccess) return status;
    const dim3 grid(ceil_div(step.queries, rows), step.batch * step.heads);
    LAUNCH(kernel, grid, dim3(threads), shared_bytes, queue)(step);
    return LAUNCH_STATUS();
}

/// Defines flash_attention() as one launch of `kernel`.
#define LADDER_STEP(kernel, rows, threads, shared_bytes)                                                         \
    extern "C" int flash_attention(                                                                              \
        const void* q, const void* k, const void* v, void* o, float* lse, int batch, int seqlen_q, int seqlen_k, \
        int heads_q, int heads_k, int head_dim, int half, int causal, float softmax_scale, void*, size_t,        \
        void* queue) {                                                                                           \
        if (head_dim != kHeadDim || half != 0 || batch * heads_q > 65535) return kUnsupportedShape;              \
        const Step step = {                                                                                      \
            static_cast<const __nv_bfloat16*>(q),                                                                \
            static_cast<const __nv_bfloat16*>(k),                                                                \
            static_cast<const __nv_bfloat16*>(v),                                                                \
            static_cast<__nv_bfloat16*>(o),                                                                      \
            lse,                                                                                                 \
            batch,                                                                                               \
            seqlen_q,                                                                                            \
            seqlen_k,                                                                                            \
            heads_q,                                                                                             \
            heads_k,                                                                                             \
            causal,                                                                                              \
            softmax_scale * kLog2E};                                                                             \
        return launch_step(kernel, step, rows, threads, shared_bytes, queue);                                    \
    }
