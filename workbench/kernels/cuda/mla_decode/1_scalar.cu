// SPDX-License-Identifier: MIT
//!KERNEL summary a block per head and query, online softmax over pages, no tensor cores
//!KERNEL arch sm_89 sm_90a
//!KERNEL step 1 a block per head and query
//
// Every head reads every page again, so L2 serves what memory is read for once: the step that shows why heads share a tile.
#include <cuda_bf16.h>

#include "kernel.h"
#include "launch.h"
#include "online_softmax.h"
#include "ptx/math.h"

constexpr int kColumns = 576, kValues = 512, kPage = 64, kThreads = 256, kWarps = kThreads / 32;

struct Step {
    const __nv_bfloat16 *q, *cache;
    const int *pages, *lengths;
    __nv_bfloat16* o;
    float* lse;
    int queries, heads, most_pages, causal;
    float scale;  // softmax_scale * log2(e)
};

__global__ void __launch_bounds__(kThreads) scalar_step(const Step p) {
    __shared__ float scores[kPage];
    const int head = blockIdx.x, query = blockIdx.y, request = blockIdx.z;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const size_t row = (static_cast<size_t>(request) * p.queries + query) * p.heads + head;
    float q[kColumns / 32];
#pragma unroll
    for (int c = 0; c < kColumns / 32; ++c) q[c] = __bfloat162float(p.q[row * kColumns + c * 32 + lane]);
    float out[2] = {};
    SoftmaxRow state;
    const int seen = p.lengths[request] - (p.causal ? p.queries - 1 - query : 0);
    for (int first = 0; first < seen; first += kPage) {
        const size_t page = p.pages[static_cast<size_t>(request) * p.most_pages + first / kPage];
        const __nv_bfloat16* const tokens = p.cache + page * kPage * kColumns;
        const int count = min(kPage, seen - first);
        for (int t = warp; t < kPage; t += kWarps) {
            float sum = 0.0f;
            if (t < count) {
#pragma unroll
                for (int c = 0; c < kColumns / 32; ++c)
                    sum += q[c] * __bfloat162float(tokens[t * kColumns + c * 32 + lane]);
            }
#pragma unroll
            for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
            if (lane == 0) scores[t] = t < count ? sum : -INFINITY;
        }
        __syncthreads();
        float largest = fmaxf(scores[lane], scores[lane + 32]);  // every warp for itself
#pragma unroll
        for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
        const float correction = state.raise(largest, p.scale, Exp2()), shift = state.shift(p.scale);
        out[0] *= correction;
        out[1] *= correction;
        for (int t = 0; t < count; ++t) {
            const float probability = Exp2()(scores[t] * p.scale - shift);
            state.sum += probability;
            const __nv_bfloat162 pair = reinterpret_cast<const __nv_bfloat162*>(tokens + t * kColumns)[threadIdx.x];
            out[0] += probability * __bfloat162float(pair.x);
            out[1] += probability * __bfloat162float(pair.y);
        }
        __syncthreads();
    }
    reinterpret_cast<__nv_bfloat162*>(p.o + row * kValues)[threadIdx.x] =
        __floats2bfloat162_rn(out[0] * state.inverse(), out[1] * state.inverse());
    if (threadIdx.x == 0) {
        p.lse[(static_cast<size_t>(request) * p.heads + head) * p.queries + query] = state.lse(p.scale);
    }
}

extern "C" int mla_decode(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int, int max_blocks_per_seq, int causal, float softmax_scale, void*, size_t,
    void* queue) {
    if (batch < 1 || batch > 65535) return kUnsupportedShape;
    const Step step = {
        static_cast<const __nv_bfloat16*>(q),
        static_cast<const __nv_bfloat16*>(kv_cache),
        block_table,
        seqlens,
        static_cast<__nv_bfloat16*>(o),
        lse,
        seqlen_q,
        heads_q,
        max_blocks_per_seq,
        causal,
        softmax_scale * kLog2E};
    LAUNCH(scalar_step, dim3(heads_q, seqlen_q, batch), dim3(kThreads), 0, queue)(step);
    return LAUNCH_STATUS();
}
