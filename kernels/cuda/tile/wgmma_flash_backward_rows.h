// SPDX-License-Identifier: MIT
// Rows of queries in attention backward, all bound by memory: the numbers of each before the main kernel, dQ in 16 bits after.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "launch.h"
#include "online_softmax.h"
#include "ptx/grid_dependency.h"
#include "ptx/turn.h"
#include "ptx/unpack_16bit.h"
#include "tile/wgmma_flash_backward_keys.h"
#include "tile/wgmma_flash_backward_shape.h"

/// What `prepare_rows` reads.
struct BackwardRows {
    const uint8_t* o;       // [batch, queries, heads, head_dim]
    const uint8_t* dout;    // the same
    const float* lse;       // [batch, heads, queries]
};

constexpr int kPrepareThreads = 256, kPrepareRows = 128;   // rows of one head

/// Shifts and deltas of 128 query rows of one head, zeros for their turns and, in the first `places` heads, for sums; counts.
template <class Element, int kHeadDim>
__global__ void __launch_bounds__(kPrepareThreads) prepare_rows(
    const __grid_constant__ BackwardRows rows, const __grid_constant__ BackwardProblem p, int places) {
    grid_dependency_wait();
    grid_dependency_release();
    constexpr int kLanes = kHeadDim / 8, kAtOnce = kPrepareThreads / kLanes;   // lanes of a row, 16 bytes each
    const int thread = static_cast<int>(threadIdx.x), blocks = p.rows / kPrepareRows;
    const int head = static_cast<int>(blockIdx.x) / blocks, first = static_cast<int>(blockIdx.x) % blocks * kPrepareRows;
    const size_t line = static_cast<size_t>(head) * p.rows + first;   // of this block's first row in the workspace
    const size_t pitch = static_cast<size_t>(p.heads) * (kHeadDim * 2);
    const size_t start = (static_cast<size_t>(head / p.heads) * p.queries) * pitch +
                         static_cast<size_t>(head % p.heads) * (kHeadDim * 2) + thread % kLanes * 16;
    if (blockIdx.x == 0 && thread == 0) *p.next = 0;
    if (first == 0 && thread == 0 && head % p.group == 0) p.added[head / p.group] = p.cleared[head / p.group] = 0;
    if (thread < kPrepareRows / 64) p.turns[line / 64 + thread] = 0;

    if (head < places) {
        float4* const sums = reinterpret_cast<float4*>(p.sums + line * kHeadDim);
#pragma unroll
        for (int i = 0; i < kPrepareRows * kHeadDim / 4 / kPrepareThreads; ++i) {
            sums[i * kPrepareThreads + thread] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
    }
#pragma unroll
    for (int i = 0; i < kPrepareRows / kAtOnce; ++i) {
        const int own = i * kAtOnce + thread / kLanes, row = first + own;
        float delta = 0.0f;
        if (row < p.queries) {
            const uint4 x = *reinterpret_cast<const uint4*>(rows.o + start + row * pitch);
            const uint4 y = *reinterpret_cast<const uint4*>(rows.dout + start + row * pitch);
            const uint32_t left[4] = {x.x, x.y, x.z, x.w}, right[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float2 a = unpack_pair<Element>(left[j]), b = unpack_pair<Element>(right[j]);
                delta += a.x * b.x + a.y * b.y;
            }
        }
#pragma unroll
        for (int distance = kLanes / 2; distance > 0; distance /= 2) {
            delta += __shfl_xor_sync(0xffffffffu, delta, distance);
        }
        if (thread % kLanes == 0) {
            const float lse = row < p.queries ? rows.lse[static_cast<size_t>(head) * p.queries + row] : -INFINITY;
            p.shifts[line + own] = lse == -INFINITY ? INFINITY : lse * kLog2E;
            p.deltas[line + own] = delta;
        }
    }
}

/// Write 128 rows of dq from `first` on, scaled and rounded, of query head `head` (batch * heads + head); four warps. kClear
/// leaves zeros in the sums.
template <class Element, int kHeadDim, bool kClear>
__device__ __forceinline__ void write_queries(const BackwardProblem& p, int head, int first, int warp, int lane) {
    constexpr int kPieces = kHeadDim / 32;   // of 64 x 32
    const size_t pitch = static_cast<size_t>(p.heads) * (kHeadDim * 2);
    float* from = p.sums + (static_cast<size_t>(p.place(head)) * p.rows + first) * kHeadDim + warp * 1024 + lane * 4;
#pragma unroll 1
    for (int i = 0; i < 2 * kPieces; ++i, from += i % 2 != 0 ? 512 : 4096 - 512) {
        const int row = first + i / kPieces * 64 + warp * 16 + lane / 4;
        float sums[16];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float4 four = load_from_l2(from + j * 128);
            sums[4 * j] = four.x;
            sums[4 * j + 1] = four.y;
            sums[4 * j + 2] = four.z;
            sums[4 * j + 3] = four.w;
        }
        if constexpr (kClear) {
#pragma unroll
            for (int j = 0; j < 4; ++j) *reinterpret_cast<float4*>(from + j * 128) = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        uint8_t* const to = p.dq + (static_cast<size_t>(head / p.heads) * p.queries + row) * pitch +
                            static_cast<size_t>(head % p.heads) * (kHeadDim * 2) + i % kPieces * 64;
        store_accumulators<Element>(sums, p.softmax_scale, to, pitch, p.queries - row, lane);
    }
}

/// dq of 128 query rows of one head per block, for launches whose main kernel leaves that out.
template <class Element, int kHeadDim>
__global__ void __launch_bounds__(128) finish_rows(const __grid_constant__ BackwardProblem p) {
    grid_dependency_wait();
    grid_dependency_release();
    const int blocks = p.rows / 128, block = static_cast<int>(blockIdx.x);
    const int thread = static_cast<int>(threadIdx.x);
    write_queries<Element, kHeadDim, false>(p, block / blocks, block % blocks * 128, thread / 32, thread % 32);
}
