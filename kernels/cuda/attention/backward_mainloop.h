// SPDX-License-Identifier: MIT
// The key warpgroups of attention backward on wgmma: dK and dV of 64 keys in registers, everything transposed.
//
// Accumulators of S^T = K Q^T and dP^T = V dO^T have keys as rows and queries as columns. Rounded in pairs they are the A
// operands of dV += P^T dO and dK += dS^T Q. See flash_attention_bwd/wgmma_tma.cu for the algorithm.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "attention/backward_shape.h"
#include "common/quad.h"
#include "common/ring.h"
#include "common/swizzle.h"
#include "ptx/atomic.h"
#include "ptx/convert.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/mbarrier.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace attention {

/// Issue d = (64 rows of `rows`) x (kQueries rows of `columns`)^T over head_dim: S^T or dP^T.
template <class Shape>
__device__ __forceinline__ void issue_by_columns(float (&d)[Shape::kQueries / 2], uint32_t rows, uint32_t columns) {
    const uint64_t a = wgmma_operand(rows), b = wgmma_operand(columns);
#pragma unroll
    for (int c = 0; c < Shape::kHeadDim / 16; ++c) {
        Wgmma16<Shape::kQueries, typename Shape::Element>::product(
            d, a + c / 4 * (Shape::kKeyPitch >> 4) + c % 4 * 2, b + c / 4 * (Shape::kQueryPitch >> 4) + c % 4 * 2,
            c > 0);
    }
}

/// Issue d += (64 keys x kQueries weights) x (kQueries rows of `rows`): dV or dK, 2 kCount columns.
template <class Shape, int kCount>
__device__ __forceinline__ void issue_by_rows(
    float (&d)[kCount], const uint32_t (&weights)[Shape::kQueries / 16][4], uint32_t rows) {
    const uint64_t b = wgmma_operand_transposed(rows, Shape::kQueryPitch);
#pragma unroll
    for (int i = 0; i < Shape::kQueries / 16; ++i) {
        Wgmma16<2 * kCount, typename Shape::Element, true>::product(d, weights[i], b + i * 128, true);
    }
}

/// Hide the scores of this thread's keys from queries before column `begins[key]`.
template <int kCount>
__device__ __forceinline__ void hide_scores(float (&scores)[kCount], const int (&begins)[2], int lane) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        if (i / 4 * 8 + lane % 4 * 2 + i % 2 < begins[i % 4 / 2]) scores[i] = -INFINITY;
    }
}

/// dP - delta of a step, at the scale of deltas.
template <class Shape>
__device__ __forceinline__ void subtract_deltas(
    float (&products)[Shape::kQueries / 2], const BackwardMemory<Shape>& memory, int stage, int lane) {
    constexpr float kFactor = 1.0f / (1 << Shape::kWeightShift);
#pragma unroll
    for (int j = 0; j < Shape::kQueries / 8; ++j) {
        const float2 delta = memory.pair(memory.deltas(stage), j, lane);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float* const pair = products + 4 * j + 2 * half;
            pair[0] = pair[0] * kFactor - delta.x;
            pair[1] = pair[1] * kFactor - delta.y;
        }
    }
}

/// dS in pairs, from pairs of weights and eight differences.
template <class Element>
__device__ __forceinline__ void weigh_differences(uint32_t (&weights)[4], const float* differences) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const float2 weight = unpack_pair<Element>(weights[j]);
        weights[j] = Element::pack(weight.x * differences[2 * j], weight.y * differences[2 * j + 1]);
    }
}

/// Write accumulators times `factor`, rounded: rows lane / 4 and, eight further on, the other one. `to` is the first, `pitch`
/// bytes lie between rows, and `valid` rows exist from there on.
template <class Element, int kCount>
__device__ __forceinline__ void store_accumulators(
    const float (&d)[kCount], float factor, uint8_t* to, size_t pitch, int valid, int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int i = 0; i < kCount / 16; ++i) {
            uint32_t packed[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float* const pair = d + 16 * i + 4 * j + 2 * half;
                packed[j] = Element::pack(pair[0] * factor, pair[1] * factor);
            }
            transpose_quad(packed, lane);  // so that a lane writes 16 bytes in one piece
            if (8 * half < valid) {
                *reinterpret_cast<uint4*>(to + 8 * half * pitch + 64 * i + lane % 4 * 16) =
                    make_uint4(packed[0], packed[1], packed[2], packed[3]);
            }
        }
    }
}

/// Where the fp32 sums of a warp begin, of dv (which = 0) or dk (1) of a tile of keys: [head_dim / 2][32].
template <int kHeadDim, int kWarps>
__device__ __forceinline__ float* key_sums(const BackwardProblem& p, int head, int tile, int which, int warp) {
    const size_t place = (static_cast<size_t>(head) * p.tiles + tile - p.split) * 2 + which;
    return p.key_sums + (place * kWarps + warp) * (kHeadDim / 2 * 32);
}

/// Add accumulators to the sums of a tile whose parts several blocks have.
template <int kCount>
__device__ __forceinline__ void add_accumulators(const float (&d)[kCount], float* to, int lane) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) add_anywhere(to + i * 32 + lane, d[i]);
}

/// All tiles of one key warpgroup. A step's scores are issued before dK takes the last step's weights, so that the exponentials
/// run beside that product.
template <class Shape, Order kOrder>
__device__ __forceinline__ void consume_keys(
    const BackwardMemory<Shape>& memory, const BackwardProblem& p, int group, int warp, int lane) {
    using Element = typename Shape::Element;
    constexpr int kPairs = Shape::kQueries / 8;  // of columns, per row of this thread
    constexpr float kFactor = 1.0f / (1 << Shape::kWeightShift);
    RingPosition<Shape::kStages> at;  // of queries and dO
    ShortRing<2> gradient_at;
    ShortRing<Shape::kPlaces> key_at;  // of keys and values
    const auto release = [&](uint32_t barrier) {
        __syncwarp();  // all lanes have read
        if (lane < kWarpArrivals) mbarrier_arrive(barrier);
    };
    // Rows of dS are queries, this warpgroup's 64 keys are columns: where this lane's rows of a transposed store begin.
    const int chunk = warp * 2 + lane / 8 % 2, row = lane / 16 * 8 + lane % 8;
    const uint32_t own_gradient = group * (Shape::kQueries * 128) + Swizzle<8>::offset(row, chunk);

    for (Board<Shape> board;;) {
        const KeyTile tile = board.read_by_warp(memory, lane);
        if (tile.head < 0) break;
        const int steps = tile.steps(p), ahead = p.keys - p.queries;
        const int group_key = tile.number * Shape::kKeys + group * 64, key = group_key + warp * 16 + lane / 4;
        // Queries from here on see all keys of the warpgroup.
        const int clear = group_key + 64 > p.keys ? 0x7fffffff : p.causal ? group_key + 63 - ahead : -0x7fffffff;
        float dk[Shape::kHeadDim / 2], dv[Shape::kHeadDim / 2];
#pragma unroll
        for (int i = 0; i < Shape::kHeadDim / 2; ++i) dk[i] = dv[i] = 0.0f;

        if (steps > 0) {
            QueryOrder<kOrder> visit(p, tile);
            float scores[Shape::kQueries / 2], products[Shape::kQueries / 2];
            uint32_t weights[kPairs / 2][4];  // P^T, then dS^T
#pragma unroll
            for (int i = 0; i < kPairs * 2; ++i) weights[i / 4][i % 4] = 0;
            const uint32_t own_keys = memory.keys(key_at.stage()) + group * (64 * 128);
            const uint32_t own_values = memory.values(key_at.stage()) + group * (64 * 128);
            mbarrier_wait(memory.keys_full(key_at.stage()), key_at.parity());
            int before = at.stage;  // where the queries of the last step lie; in the first one zeros meet its own
            for (int step = 0; step < steps; ++step, visit.next(p, tile)) {
                const int stage = at.stage;
                mbarrier_wait(memory.queries_full(stage), at.parity);
                wgmma_fence();
                issue_by_columns<Shape>(scores, own_keys, memory.queries(stage));
                wgmma_commit();
                issue_by_rows<Shape>(dk, weights, memory.queries(before));
                wgmma_commit();
                wgmma_wait<1>();
                wgmma_results(scores);
                if (step == steps - 1) release(memory.keys_empty(key_at.stage()));
                const int first_query = visit.tile * Shape::kQueries;
                if (first_query < clear) {
                    int begins[2];
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const int own = key + 8 * half;
                        begins[half] = own >= p.keys ? Shape::kQueries : p.causal ? own - ahead - first_query : 0;
                    }
                    hide_scores(scores, begins, lane);
                }
#pragma unroll
                for (int j = 0; j < kPairs; ++j) {
                    const float2 shift = memory.pair(memory.shifts(stage), j, lane);
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        float* const pair = scores + 4 * j + 2 * half;
                        pair[0] = Exp2()(pair[0] * p.scale - shift.x);
                        pair[1] = Exp2()(pair[1] * p.scale - shift.y);
                    }
                }
                mbarrier_wait(memory.out_full(stage), at.parity);
                // ptxas moves work over the waits for products, but not over the loops that wait at mbarriers: they keep the
                // exponentials before the wait for dK, and the packing behind it, where dK needs the weights no more.
                wgmma_wait<0>();
                wgmma_results(dk);
                if (step > 0) release(memory.queries_empty(before));
                mbarrier_wait(memory.values_full(key_at.stage()), key_at.parity());
                wgmma_results(scores);
#pragma unroll
                for (int i = 0; i < kPairs * 2; ++i) {
                    weights[i / 4][i % 4] = Element::pack(scores[2 * i], scores[2 * i + 1]);
                }
                wgmma_fence();
                issue_by_columns<Shape>(products, own_values, memory.out(stage));
                wgmma_commit();
                issue_by_rows<Shape>(dv, weights, memory.out(stage));
                wgmma_commit();
                wgmma_wait<1>();
                wgmma_results(products);
                if (step == steps - 1) release(memory.values_empty(key_at.stage()));
                subtract_deltas<Shape>(products, memory, stage, lane);
                wgmma_wait<0>();
                wgmma_results(dv);
                mbarrier_wait(memory.gradients_empty(gradient_at.stage()), gradient_at.parity() ^ 1);
                wgmma_results(products);  // only now may the weights' registers take dS
                release(memory.out_empty(stage));
#pragma unroll
                for (int i = 0; i < kPairs / 2; ++i) {
                    weigh_differences<Element>(weights[i], products + 8 * i);
                    stmatrix_x4_trans(
                        memory.gradients(gradient_at.stage()) + own_gradient + i * (16 * 128), weights[i]);
                }
                fence_async_shared();
                release(memory.gradients_full(gradient_at.stage()));
                gradient_at.advance();
                at.advance();
                before = stage;
            }
            wgmma_fence();
            issue_by_rows<Shape>(dk, weights, memory.queries(before));
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_results(dk);
            release(memory.queries_empty(before));
            key_at.advance();
        }

        if (kOrder != Order::kUp && tile.comes_in_parts(p)) {
            if (steps == 0) continue;
            const int own = group * 4 + warp;
            float* const to = key_sums<Shape::kHeadDim, Shape::kKeyWarps>(p, tile.head, tile.number, 0, own);
            add_accumulators(dv, to, lane);
            add_accumulators(dk, to + Shape::kKeyWarps * (Shape::kHeadDim / 2 * 32), lane);
            continue;
        }
        const int batch = tile.head / p.key_heads, key_head = tile.head % p.key_heads;
        const size_t pitch = static_cast<size_t>(p.key_heads) * (Shape::kHeadDim * 2);
        const size_t to = (static_cast<size_t>(batch) * p.keys + key) * pitch + key_head * (Shape::kHeadDim * 2);
        store_accumulators<Element>(dv, kFactor, p.dv + to, pitch, p.keys - key, lane);
        store_accumulators<Element>(dk, p.softmax_scale, p.dk + to, pitch, p.keys - key, lane);
    }
}

}  // namespace attention
