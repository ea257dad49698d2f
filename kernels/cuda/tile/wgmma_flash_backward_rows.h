// SPDX-License-Identifier: MIT
// Rows of queries in attention backward, all bound by memory: the numbers of each before their products, dQ in 16 bits after.
// One warp per block of the main kernel does most of both while the others compute.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "launch.h"
#include "online_softmax.h"
#include "ptx/grid_dependency.h"
#include "ptx/lane_index.h"
#include "ptx/turn.h"
#include "ptx/unpack_16bit.h"
#include "tile/wgmma_flash_backward_keys.h"
#include "tile/wgmma_flash_backward_shape.h"

/// Shift and delta of 16 query rows from `first` on of query head `head` (batch * heads + head), and zeros in their sums. One
/// warp.
template <class Element, int kHeadDim, bool kSums, bool kNumbers>
__device__ __forceinline__ void prepare_queries(const BackwardProblem& p, int head, int first, int lane) {
    constexpr int kLanes = kHeadDim / 8, kAtOnce = 32 / kLanes;   // lanes of a row, 16 bytes each
    constexpr int kShift = kShiftOfWeights<Element>;
    const size_t line = static_cast<size_t>(head) * p.rows + first;   // of the first row in the workspace
    if (kSums) {
        float4* const sums = reinterpret_cast<float4*>(p.sums + line / 64 * (64 * kHeadDim) + line % 64 * kHeadDim) + lane;
#pragma unroll
        for (int i = 0; i < kHeadDim / 8; ++i) sums[32 * i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
    if (!kNumbers) return;
    const int pitch = p.heads * (kHeadDim * 2);
    const size_t start = (static_cast<size_t>(head / p.heads) * p.queries + first) * pitch +
                         static_cast<size_t>(head % p.heads) * (kHeadDim * 2) + lane % kLanes * 16;
#pragma unroll 2
    for (int i = 0; i < 16 / kAtOnce; ++i) {
        const int own = i * kAtOnce + lane / kLanes;
        float delta = 0.0f;
        if (first + own < p.queries) {
            const size_t at = start + static_cast<size_t>(own) * pitch;
            const uint4 x = *reinterpret_cast<const uint4*>(p.o + at);
            const uint4 y = *reinterpret_cast<const uint4*>(p.dout + at);
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
        if (lane % kLanes == 0) p.deltas[line + own] = delta * (1.0f / (1 << kShift));
    }
    if (lane < 16) {
        const int row = first + lane;
        const float lse = row < p.queries ? p.lse[static_cast<size_t>(head) * p.queries + row] : -INFINITY;
        p.shifts[line + lane] = lse == -INFINITY ? INFINITY : lse * kLog2E - kShift;
    }
}

/// 128 query rows of one head per block: all but zeros of `numbered` query heads, zeros of `zeroed`. And zeros for all counts.
template <class Element, int kHeadDim>
__global__ void __launch_bounds__(256) prepare_rows(const __grid_constant__ BackwardProblem p, int numbered, int zeroed) {
    grid_dependency_wait();
    grid_dependency_release();
    const int thread = static_cast<int>(threadIdx.x), blocks = p.rows / 128, block = static_cast<int>(blockIdx.x);
    const int counts = p.batch * p.heads * (p.rows / 64) + 3 + 2 * p.batch * p.key_heads;   // they lie in a row
    for (int i = block * 256 + thread; i < counts; i += static_cast<int>(gridDim.x) * 256) p.turns[i] = 0;
    // The main kernel begins with what comes last here, so that it lies in L2.
    const int head = numbered - 1 - block / blocks, first = block % blocks * 128 + thread / 32 * 16;
    if (head < zeroed) prepare_queries<Element, kHeadDim, true, true>(p, head, first, thread % 32);
    else prepare_queries<Element, kHeadDim, false, true>(p, head, first, thread % 32);
}

/// Write dq, scaled and rounded, of 16 query rows from `first` on of query head `head` (batch * heads + head): what one warp
/// of dQ left in the sums. One warp.
template <class Element, int kHeadDim>
__device__ __forceinline__ void write_queries(const BackwardProblem& p, int head, int first, int lane) {
    constexpr int kUnits = kUnitsOfPart<kHeadDim>, kHalf = kUnits == 1 ? 512 : 2048;   // between 32 columns and the next
    const size_t pitch = static_cast<size_t>(p.heads) * (kHeadDim * 2);
    const int row = first + lane / 4;
    const float* from = p.sums + (static_cast<size_t>(head) * p.rows + first / 64 * 64) * kHeadDim +
                        first / 16 % 4 * (1024 / kUnits) + lane * 4;
    uint8_t* to = p.dq + (static_cast<size_t>(head / p.heads) * p.queries + row) * pitch +
                  static_cast<size_t>(head % p.heads) * (kHeadDim * 2);
#pragma unroll 1
    for (int i = 0; i < kHeadDim / 32; ++i, from += i % 2 != 0 ? kHalf : 4096 - kHalf, to += 64) {   // 32 columns at a time
        float sums[16];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float4 four = load_from_l2(from + j * 128);
            sums[4 * j] = four.x;
            sums[4 * j + 1] = four.y;
            sums[4 * j + 2] = four.z;
            sums[4 * j + 3] = four.w;
        }
        store_accumulators<Element>(sums, p.softmax_scale, to, pitch, p.queries - row, lane);
    }
}

#ifndef PREPARES
#define PREPARES 1
#endif
#ifndef ADAPT
#define ADAPT 0
#endif
#if ADAPT
/// What the main kernel does beside its products, one warp of each block, 64 query rows of a head (a piece) at a time: it
/// prepares heads, but for those of the first two sections, which `prepare_rows` did, some sections ahead of the tiles, and
/// else writes dq of heads that are complete, which leaves the rest to `finish_rows`. It never waits for a piece in
/// particular, so that whoever waits for it waits for work only.
template <class Element, int kHeadDim, int kAdders>
__device__ __forceinline__ void tend_rows(const BackwardProblem& p) {
    constexpr int kAhead = 4;   // sections
    if (p.early == 0) return;
    for (;;) {
        int piece = -1;   // negative: none; then what to do next
        bool early = false;
        if (lane_index() == 0) {
            const int taken = read_count(p.next), ahead = (taken / (p.section * p.tiles) + kAhead - 1) * p.section * p.pieces;
            int number = read_count(p.chore);
            if (number < p.early && number < ahead) {
                number = take_number(p.chore);
                early = number < p.early;
                if (early) piece = number + p.first_head(2) * p.pieces;
            } else {
                const int next = read_count(p.written);
                const bool ready = next < p.batch * p.key_heads * p.pieces && taken < p.tasks + static_cast<int>(gridDim.x) / 2 &&
                                   read_count(p.added + next / p.pieces) >= kAdders * p.tiles;
                if (ready && take_if_next(p.written, next)) piece = next;
                if (!ready && number >= p.early && taken >= p.tasks) piece = -2;
            }
        }
        piece = __shfl_sync(0xffffffffu, piece, 0);
        early = __shfl_sync(0xffffffffu, static_cast<int>(early), 0) != 0;
        if (piece == -2) return;
        if (piece < 0) {
            wait_a_moment();
            continue;
        }
        const int head = piece / (p.rows / 64);   // a query head
        int row = piece * 64 - head * p.rows;
#pragma unroll 1
        do {
            if (early) prepare_queries<Element, kHeadDim, true, PREPARES != 0>(p, head, row, lane_index());
            else write_queries<Element, kHeadDim>(p, head, row, lane_index());
            row += 16;
        } while (row % 64 != 0);
        if (early) {
            fence_device();
            __syncwarp();
            if (lane_index() == 0) raise_count(p.ready + head / p.group);
        }
    }
}

/// dq of 128 query rows of one head per block, but for what the main kernel wrote.
template <class Element, int kHeadDim>
__global__ void __launch_bounds__(256) finish_rows(const __grid_constant__ BackwardProblem p, int first_head) {
    grid_dependency_wait();
    grid_dependency_release();
    const int blocks = p.rows / 128, block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
    const int head = block / blocks, row = block % blocks * 128 + thread / 32 * 16;
    if (head * (p.rows / 64) + row / 64 >= *p.written) write_queries<Element, kHeadDim>(p, head, row, thread % 32);
}
#else
/// What the main kernel does beside its products, one warp of each block, 64 query rows of a head (a piece) at a time: first
/// it prepares all heads but those of the first two sections, which `prepare_rows` did; then it writes dq, head by head as they
/// are done, of all but the last section. Nobody waits in vain: preparing waits for nothing, tiles for that, and dq for tiles.
template <class Element, int kHeadDim, int kAdders>
__device__ __forceinline__ void tend_rows(const BackwardProblem& p) {
    for (;;) {
        int number = 0;
        if (lane_index() == 0) number = take_number(p.chore);
        number = __shfl_sync(0xffffffffu, number, 0);
        if (number >= p.chores) return;
        const bool early = number < p.early;
        const int piece = early ? number + p.first_head(2) * p.pieces : number - p.early;
        const int head = piece / (p.rows / 64);   // a query head
        int row = piece * 64 - head * p.rows;
        if (!early) wait_for_count(p.added + head / p.group, kAdders * p.tiles);
#pragma unroll 1
        do {
            if (early) prepare_queries<Element, kHeadDim, true, PREPARES != 0>(p, head, row, lane_index());
            else write_queries<Element, kHeadDim>(p, head, row, lane_index());
            row += 16;
        } while (row % 64 != 0);
        if (early) {
            fence_device();
            __syncwarp();
            if (lane_index() == 0) raise_count(p.ready + head / p.group);
        }
    }
}

/// dq of 128 query rows of one head per block, from query head `first_head` on: of the heads that the main kernel leaves out.
template <class Element, int kHeadDim>
__global__ void __launch_bounds__(256) finish_rows(const __grid_constant__ BackwardProblem p, int first_head) {
    grid_dependency_wait();
    grid_dependency_release();
    const int blocks = p.rows / 128, block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
    write_queries<Element, kHeadDim>(p, first_head + block / blocks, block % blocks * 128 + thread / 32 * 16, thread % 32);
}
#endif
