// SPDX-License-Identifier: MIT
// Rows of queries in attention backward, all bound by memory: the numbers of each before the main kernel, dQ in 16 bits after,
// and what one warp per block of the main kernel does of both while the others compute.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "attention/backward_mainloop.h"
#include "attention/backward_shape.h"
#include "launch.h"
#include "online_softmax.h"
#include "ptx/atomic.h"
#include "ptx/convert.h"
#include "ptx/launch_dependency.h"
#include "ptx/thread.h"

namespace attention {

/// What `prepare_rows` reads.
struct BackwardRows {
    const uint8_t* o;     // [batch, queries, heads, head_dim]
    const uint8_t* dout;  // the same
    const float* lse;     // [batch, heads, queries]
};

constexpr int kPrepareThreads = 256, kPrepareRows = 128;  // rows of one head
template <int kHeadDim>
constexpr int kKeyRows = kHeadDim > 128 ? 64 : 128;  // of a tile of keys

/// Shifts and deltas of 128 query rows of one head, zeros for their turns and, in the first `zeroed` heads, for sums; counts;
/// zeros for the sums of keys.
template <class Element, int kHeadDim>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare_rows(const __grid_constant__ BackwardRows rows, const __grid_constant__ BackwardProblem p, int zeroed) {
    grid_dependency_wait();
    grid_dependency_release();
    constexpr int kLanes = kHeadDim / 8, kAtOnce = kPrepareThreads / kLanes;  // lanes of a row, 16 bytes each
    constexpr int kShift = kShiftOfWeights<Element>;
    const int thread = static_cast<int>(threadIdx.x), blocks = p.rows / kPrepareRows;
    const int head = static_cast<int>(blockIdx.x) / blocks,
              first = static_cast<int>(blockIdx.x) % blocks * kPrepareRows;
    const size_t line = static_cast<size_t>(head) * p.rows + first;  // of this block's first row in the workspace
    const size_t pitch = static_cast<size_t>(p.heads) * (kHeadDim * 2);
    const size_t start = (static_cast<size_t>(head / p.heads) * p.queries) * pitch +
                         static_cast<size_t>(head % p.heads) * (kHeadDim * 2) + thread % kLanes * 16;
    if (blockIdx.x == 0 && thread == 0) *p.next = p.given, *p.chore = 0;
    if (first == 0 && thread == 0 && head % p.group == 0) p.added[head / p.group] = p.cleared[head / p.group] = 0;
    if (thread < kPrepareRows / 64) p.turns[line / 64 + thread] = 0;

    // All that a thread reads at a time is on its way before it waits for any of it: with few rows, prepare_rows is what its
    // chain of loads takes.
    constexpr int kAhead = kPrepareRows / kAtOnce < 4 ? kPrepareRows / kAtOnce : 4;
    float lse = -INFINITY;
    if (thread < kPrepareRows && first + thread < p.queries) {
        lse = rows.lse[static_cast<size_t>(head) * p.queries + first + thread];
    }
#pragma unroll
    for (int i = 0; i < kPrepareRows / kAtOnce; i += kAhead) {
        uint4 o[kAhead], dout[kAhead];
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
            const int row = first + (i + k) * kAtOnce + thread / kLanes;
            o[k] = dout[k] = make_uint4(0, 0, 0, 0);
            if (row < p.queries) {
                o[k] = *reinterpret_cast<const uint4*>(rows.o + start + row * pitch);
                dout[k] = *reinterpret_cast<const uint4*>(rows.dout + start + row * pitch);
            }
        }
        if (i == 0 && head < zeroed) {
            float4* const sums = reinterpret_cast<float4*>(p.sums + line * kHeadDim);
#pragma unroll
            for (int k = 0; k < kPrepareRows * kHeadDim / 4 / kPrepareThreads; ++k) {
                sums[k * kPrepareThreads + thread] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            }
        }
#pragma unroll
        for (int k = 0; k < kAhead; ++k) {
            const uint32_t left[4] = {o[k].x, o[k].y, o[k].z, o[k].w};
            const uint32_t right[4] = {dout[k].x, dout[k].y, dout[k].z, dout[k].w};
            float delta = 0.0f;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float2 a = unpack_pair<Element>(left[j]), b = unpack_pair<Element>(right[j]);
                delta += a.x * b.x + a.y * b.y;
            }
#pragma unroll
            for (int distance = kLanes / 2; distance > 0; distance /= 2) {
                delta += __shfl_xor_sync(0xffffffffu, delta, distance);
            }
            if (thread % kLanes == 0) {
                p.deltas[line + (i + k) * kAtOnce + thread / kLanes] = delta * (1.0f / (1 << kShift));
            }
        }
    }
    if (thread < kPrepareRows) p.shifts[line + thread] = lse == -INFINITY ? INFINITY : lse * kLog2E - kShift;
    const size_t fours = static_cast<size_t>(p.tiles_in_parts()) * (kKeyRows<kHeadDim> * kHeadDim / 2);
    for (size_t i = static_cast<size_t>(blockIdx.x) * kPrepareThreads + thread; i < fours;
         i += static_cast<size_t>(gridDim.x) * kPrepareThreads) {
        reinterpret_cast<float4*>(p.key_sums)[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
}

/// Write dq, scaled and rounded, of 16 query rows from `first` on of query head `head` (batch * heads + head): what one warp
/// of dQ left in the sums. One warp, which reads kAtOnce times 32 columns at a time.
template <class Element, int kHeadDim, int kAtOnce = 1>
__device__ __forceinline__ void write_queries(const BackwardProblem& p, int head, int first, int lane) {
    const size_t pitch = static_cast<size_t>(p.heads) * (kHeadDim * 2);
    const int row = first + lane / 4;
    const float* from =
        p.sums + (static_cast<size_t>(head) * p.rows + first / 64 * 64) * kHeadDim + first / 16 % 4 * 1024 + lane * 4;
    uint8_t* to = p.dq + (static_cast<size_t>(head / p.heads) * p.queries + row) * pitch +
                  static_cast<size_t>(head % p.heads) * (kHeadDim * 2);
#pragma unroll 1
    for (int i = 0; i < kHeadDim / 32; i += kAtOnce, to += 64 * kAtOnce) {
        float sums[kAtOnce][16];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k, from += (i + k) % 2 != 0 ? 512 : 4096 - 512) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float4 four = load_from_l2(from + j * 128);
                sums[k][4 * j] = four.x;
                sums[k][4 * j + 1] = four.y;
                sums[k][4 * j + 2] = four.z;
                sums[k][4 * j + 3] = four.w;
            }
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
            store_accumulators<Element>(sums[k], p.softmax_scale, to + k * 64, pitch, p.queries - row, lane);
        }
    }
}

/// What the main kernel does for sums beside its products, one warp of each block, 64 query rows of a head (a piece) at a time.
/// While blocks work on section s it leaves zeros for section s + 2 and, in turns, writes dq of section s - 1, which is done by
/// then; the first two sections have zeros already, and the last one's dq is left to others. Zeros of all pieces at once would
/// keep L2 from those who compute. Where it writes no dq (`tends`) nothing else is to be done, and zeros come all at once.
///
/// Nobody waits in vain: writing waits for an earlier section's tiles, and these for zeros that come before it in this order.
template <class Element, int kHeadDim, int kAdders>
__device__ __forceinline__ void tend_sums(const BackwardProblem& p) {
    for (;;) {
        int number = 0;
        if (lane_index() == 0) number = take_number(p.chore);
        number = __shfl_sync(0xffffffffu, number, 0);
        if (number >= p.chores) return;
        int pieces = p.pieces, size = p.section;  // of a head, and heads of a section
        compute_now(
            pieces);  // what follows from these is made anew for each chore: there are no registers to keep it in
        compute_now(size);
        const int sections = number / (size * pieces),
                  section = min(p.tends ? (sections + 1) / 2 : sections, p.sections - 3);
        const int rest = number - (p.tends ? max(0, 2 * section - 1) : section) * size * pieces;
        const int zeroed = (section < p.sections - 3 ? size : p.last) * pieces;  // pieces of section + 2
        const int written = p.tends && section > 0 ? size * pieces : 0;          // of section - 1; then of those behind
        const bool turns = rest < 2 * written;
        if (turns ? rest % 2 == 0 : rest < zeroed + written) {
            const int place = turns ? rest / 2 : rest - written;
            const int head = (section + 2) * size + place / pieces;
            float* const sums = p.sums + (static_cast<size_t>(section + 2) * size * pieces + place) * (64 * kHeadDim);
#pragma unroll 4
            for (int i = lane_index(); i < kHeadDim * 16; i += 32) {
                reinterpret_cast<float4*>(sums)[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            }
            fence_device();
            __syncwarp();
            if (lane_index() == 0) raise_count(p.cleared + head);
        } else {
            // 64 rows, of all heads
            const int slice = (turns ? rest / 2 : rest - zeroed) + max(0, section - 1) * size * pieces;
            wait_for_count(p.added + slice / pieces, kAdders * p.tasks_of_head());
            const int head = slice / (p.rows / 64);  // a query head
            int row = slice * 64 - head * p.rows;
#pragma unroll 1
            do {
                write_queries<Element, kHeadDim>(p, head, row, lane_index());
                row += 16;
            } while (row % 64 != 0);
        }
    }
}

/// Write dv (which = 0) or dk (1) of a tile of keys, scaled and rounded, from the sums that its parts left: the 16 keys of warp
/// `warp`.
template <class Element, int kHeadDim>
__device__ __forceinline__ void write_keys(
    const BackwardProblem& p, int head, int tile, int which, int warp, int lane) {
    const float* const from = key_sums<kHeadDim, kKeyRows<kHeadDim> / 16>(p, head, tile, which, warp) + lane;
    float sums[kHeadDim / 2];
#pragma unroll
    for (int i = 0; i < kHeadDim / 2; ++i) sums[i] = from[i * 32];
    const int key = tile * kKeyRows<kHeadDim> + warp * 16 + lane / 4;
    const size_t pitch = static_cast<size_t>(p.key_heads) * (kHeadDim * 2);
    uint8_t* const to = (which == 0 ? p.dv : p.dk) + (static_cast<size_t>(head / p.key_heads) * p.keys + key) * pitch +
                        head % p.key_heads * (kHeadDim * 2);
    const float factor = which == 0 ? 1.0f / (1 << kShiftOfWeights<Element>) : p.softmax_scale;
    store_accumulators<Element>(sums, factor, to, pitch, p.keys - key, lane);
}

/// dq of 128 query rows of one head per block, from query head `first_head` on: of the heads that the main kernel leaves out.
/// From block `query_blocks` on: dv and dk of tiles of keys, where these came in parts, 16 keys of one of them per warp.
template <class Element, int kHeadDim>
__global__ void __launch_bounds__(256)
    finish_rows(const __grid_constant__ BackwardProblem p, int first_head, int query_blocks) {
    grid_dependency_wait();
    grid_dependency_release();
    const int blocks = p.rows / 128, block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
    if (block < query_blocks) {
        write_queries<Element, kHeadDim, kHeadDim == 64 ? 2 : 4>(
            p, first_head + block / blocks, block % blocks * 128 + thread / 32 * 16, thread % 32);
    } else {
        constexpr int kWarps = kKeyRows<kHeadDim> / 16;
        const int rows = (block - query_blocks) * 8 + thread / 32, place = p.split + rows / (2 * kWarps);
        write_keys<Element, kHeadDim>(
            p, place / p.tiles, place % p.tiles, rows / kWarps % 2, rows % kWarps, thread % 32);
    }
}

}  // namespace attention
