// SPDX-License-Identifier: MIT
// What the backward kernels share: their arguments, and the kernel that comes first, row_terms.
#pragma once

#include <cstddef>

#include "attention/backward_tiles.h"
#include "ceil_div.h"
#include "isa/lanes.h"
#include "kernel.h"
#include "online_softmax.h"
#include "tile/half.h"

constexpr int kTermRows = 128;  // what a head's terms are rounded up to

struct Gradients {
    const uint16_t* q;
    const uint16_t* k;
    const uint16_t* v;
    const uint16_t* o;
    const uint16_t* dout;
    const float* lse;
    uint16_t* dq;
    uint16_t* dk;
    uint16_t* dv;
    float* row_lse;    // in base 2; [batch, heads_q, term_rows]; +inf where p is 0 whatever the score
    float* row_delta;  // the same
    float* sums;       // of dq, in fp32: as many rows; null if there are none
    float lse_less;    // taken off row_lse
    int batch, seqlen_q, seqlen_k, heads_q, heads_k;
    int term_rows;
    int causal;
    float softmax_scale;
    int blocks;  // workgroups per head

    __device__ __forceinline__ float scale() const { return softmax_scale * kLog2E; }

    /// Query i sees keys up to i + shift(); without a mask all of them.
    __device__ __forceinline__ int shift() const { return causal ? seqlen_k - seqlen_q : seqlen_k; }

    /// Keys that query `query` sees; not positive if none.
    __device__ __forceinline__ int visible(int query) const {
        const int limit = query + 1 + shift();
        return limit < seqlen_k ? limit : seqlen_k;
    }
};

/// The arguments that kernel.h names as a problem, with `numbers` fp32 numbers of workspace per row of terms: two for the terms,
/// the others for sums of dq. Returns kUnsupportedShape or kWorkspaceTooSmall.
inline int arrange(
    Gradients* problem, const void* q, const void* k, const void* v, const void* o, const void* dout, const float* lse,
    void* dq, void* dk, void* dv, int batch, int seqlen_q, int seqlen_k, int heads_q, int heads_k, int causal,
    float softmax_scale, void* workspace, size_t workspace_bytes, int numbers) {
    constexpr int kMaxHeads = 1 << 14;  // 128 rows of all heads are addressed with 31 bits
    constexpr int kMaxRows = 1 << 29;
    if (batch < 1 || seqlen_q < 1 || seqlen_q > kMaxRows || seqlen_k < 1 || seqlen_k > kMaxRows || heads_k < 1 ||
        heads_q < 1 || heads_q % heads_k != 0 || heads_q > kMaxHeads || !(softmax_scale > 0.0f))
        return kUnsupportedShape;
    const int term_rows = ceil_div(seqlen_q, kTermRows) * kTermRows;
    const size_t terms = static_cast<size_t>(batch) * static_cast<size_t>(heads_q) * static_cast<size_t>(term_rows);
    if (!workspace || workspace_bytes < terms * static_cast<size_t>(numbers) * sizeof(float)) return kWorkspaceTooSmall;
    float* const row_lse = static_cast<float*>(workspace);
    *problem = {
        static_cast<const uint16_t*>(q),
        static_cast<const uint16_t*>(k),
        static_cast<const uint16_t*>(v),
        static_cast<const uint16_t*>(o),
        static_cast<const uint16_t*>(dout),
        lse,
        static_cast<uint16_t*>(dq),
        static_cast<uint16_t*>(dk),
        static_cast<uint16_t*>(dv),
        row_lse,
        row_lse + terms,
        numbers > 2 ? row_lse + 2 * terms : nullptr,
        0.0f,
        batch,
        seqlen_q,
        seqlen_k,
        heads_q,
        heads_k,
        term_rows,
        causal,
        softmax_scale,
        0};
    return kOk;
}

/// Where row `row` of a head begins, in tensors [batch, length, heads, D].
template <int D>
__device__ __forceinline__ size_t row_of(int batch, int length, int row, int heads, int head) {
    return ((static_cast<size_t>(batch) * static_cast<size_t>(length) + static_cast<size_t>(row)) *
                static_cast<size_t>(heads) +
            static_cast<size_t>(head)) *
           D;
}

/// Terms of the rows, and zeros for the sums. As many lanes share a row as it has 16-byte pieces.
template <class Half, int D>
__global__ void __launch_bounds__(BackwardShape<D>::kThreads) row_terms(Gradients problem) {
    constexpr int kLanes = D / kHalvesPerChunk;
    const long long row =
        static_cast<long long>(blockIdx.x) * (BackwardShape<D>::kThreads / kLanes) + threadIdx.x / kLanes;
    const int query = static_cast<int>(row % problem.term_rows);
    const long long any_head = row / problem.term_rows;
    if (any_head >= static_cast<long long>(problem.batch) * problem.heads_q) return;
    const int batch = static_cast<int>(any_head / problem.heads_q), head = static_cast<int>(any_head % problem.heads_q);
    const int part = static_cast<int>(threadIdx.x) % kLanes;
    float lse = INFINITY, delta = 0.0f;
    if (query < problem.seqlen_q) {
        const size_t at = row_of<D>(batch, problem.seqlen_q, query, problem.heads_q, head) + part * kHalvesPerChunk;
        const u32x4 o = *reinterpret_cast<const u32x4*>(problem.o + at);
        const u32x4 dout = *reinterpret_cast<const u32x4*>(problem.dout + at);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            delta += Half::low(o[i]) * Half::low(dout[i]) + Half::high(o[i]) * Half::high(dout[i]);
        const float natural = problem.lse[any_head * problem.seqlen_q + query];
        lse = natural == -INFINITY ? INFINITY : natural * kLog2E - problem.lse_less;
    }
    if (problem.sums) {
        float* const sum = problem.sums + row * D + part * kHalvesPerChunk;
        *reinterpret_cast<f32x4*>(sum) = f32x4{};
        *reinterpret_cast<f32x4*>(sum + 4) = f32x4{};
    }
    delta += from_lane_xor<1>(delta);
    delta += from_lane_xor<2>(delta);
    delta += from_lane_xor<4>(delta);
    if constexpr (kLanes > 8) delta += from_lane_xor<8>(delta);
    if constexpr (kLanes > 16) delta += from_lane_xor<16>(delta);
    if (part != 0) return;
    problem.row_lse[row] = lse;
    problem.row_delta[row] = delta;
}
