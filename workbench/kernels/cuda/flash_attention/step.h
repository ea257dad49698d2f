// SPDX-License-Identifier: MIT
// What the steps of the attention ladder share: one head's rows, the mask, and the entry point of kernel.h.
//
// A step is a kernel that handles a tile of query rows of one head per block: bf16 or fp16, head_dim 64, any lengths, with or
// without causal mask. Each file changes one thing about the step before it. T is __nv_bfloat16 or __half.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <type_traits>

#include "ceil_div.h"
#include "kernel.h"
#include "launch.h"
#include "online_softmax.h"
#include "ptx/math.h"
#include "ptx/mma.h"

constexpr int kHeadDim = 64;

__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }

/// To the nearest number of the type.
template <class T>
__device__ __forceinline__ T rounded(float x);
template <>
__device__ __forceinline__ __nv_bfloat16 rounded<__nv_bfloat16>(float x) {
    return __float2bfloat16(x);
}
template <>
__device__ __forceinline__ __half rounded<__half>(float x) {
    return __float2half(x);
}

/// What ptx/ calls the type.
template <class T>
using Element = std::conditional_t<std::is_same<T, __half>::value, Fp16, Bf16>;

template <class T>
struct Step {
    const T *q, *k, *v;
    T* o;
    float* lse;
    int batch, queries, keys, heads, key_heads, causal;
    float scale;  // softmax_scale * log2(e)

    /// The head of this block: blockIdx.y counts batch * heads + head.
    __device__ int head() const { return blockIdx.y % heads; }
    __device__ int key_head() const { return head() / (heads / key_heads); }
    __device__ int sequence() const { return blockIdx.y / heads; }
    __device__ size_t query_row(int i) const {
        return ((static_cast<size_t>(sequence()) * queries + i) * heads + head()) * kHeadDim;
    }
    __device__ size_t key_row(int j) const {
        return ((static_cast<size_t>(sequence()) * keys + j) * key_heads + key_head()) * kHeadDim;
    }
    /// How many keys query i sees.
    __device__ int seen(int i) const { return causal ? max(0, min(keys, i + 1 + keys - queries)) : keys; }
    /// How many keys a tile of `rows` queries from `first` on sees, at most.
    __device__ int seen_by_tile(int first, int rows) const { return seen(min(queries, first + rows) - 1); }
    __device__ void store_lse(int i, const SoftmaxRow& row) const {
        lse[static_cast<size_t>(blockIdx.y) * queries + i] = row.lse(scale);
    }
};

/// The arguments of flash_attention() that a step needs.
struct Call {
    const void *q, *k, *v;
    void* o;
    float* lse;
    int batch, queries, keys, heads, key_heads, head_dim, causal;
    float scale;

    bool possible() const { return head_dim == kHeadDim && batch * heads <= 65535; }
    template <class T>
    Step<T> step() const {
        return {
            static_cast<const T*>(q),
            static_cast<const T*>(k),
            static_cast<const T*>(v),
            static_cast<T*>(o),
            lse,
            batch,
            queries,
            keys,
            heads,
            key_heads,
            causal,
            scale * kLog2E};
    }
};

/// Launch `kernel` with a block of `threads` per `rows` queries and head.
template <class T, class Kernel>
int launch_step(Kernel kernel, const Call& call, int rows, int threads, int shared_bytes, void* queue) {
    int device = 0, most = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) status = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (status != cudaSuccess) return status;
    if (shared_bytes > most) return kUnsupportedShape;
    status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
    if (status != cudaSuccess) return status;
    const dim3 grid(ceil_div(call.queries, rows), call.batch * call.heads);
    LAUNCH(kernel, grid, dim3(threads), shared_bytes, queue)(call.step<T>());
    return LAUNCH_STATUS();
}

/// Defines flash_attention() as `launch`<T>(call, queue).
#define LADDER_ENTRY(launch)                                                                                     \
    extern "C" int flash_attention(                                                                              \
        const void* q, const void* k, const void* v, void* o, float* lse, int batch, int seqlen_q, int seqlen_k, \
        int heads_q, int heads_k, int head_dim, int half, int causal, float softmax_scale, void*, size_t,        \
        void* queue) {                                                                                           \
        const Call call = {q,        k,       v,       o,        lse,    batch,        seqlen_q,                 \
                           seqlen_k, heads_q, heads_k, head_dim, causal, softmax_scale};                         \
        if (!call.possible()) return kUnsupportedShape;                                                          \
        return half ? launch<__half>(call, queue) : launch<__nv_bfloat16>(call, queue);                          \
    }

/// Defines flash_attention() as one launch of `kernel`<T>.
#define LADDER_STEP(kernel, rows, threads, shared_bytes)                            \
    template <class T>                                                              \
    int launch_kernel(const Call& call, void* queue) {                              \
        return launch_step<T>(kernel<T>, call, rows, threads, shared_bytes, queue); \
    }                                                                               \
    LADDER_ENTRY(launch_kernel)
