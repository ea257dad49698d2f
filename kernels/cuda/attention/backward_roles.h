// SPDX-License-Identifier: MIT
// The key warpgroups of attention backward on wgmma at head dimension 256, where registers hold dK or dV of 64 keys, not both.
//
// Two warpgroups have the same keys. Role 0 computes S^T = K Q^T, P^T and dV += P^T dO, role 1 dP^T = V dO^T, dS^T and
// dK += dS^T Q: half of the products each. P passes from one to the other through shared memory, rounded, in the order of
// the accumulators, which are of the same keys and queries in the same lanes. Else it is as in attention/backward_mainloop.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/backward_mainloop.h"
#include "attention/backward_shape.h"
#include "common/ring.h"
#include "common/swizzle.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace attention {

/// Weights of a step's scores, those of tile `first_query` on of which stage `stage` has the shifts. `key`: this thread's
/// first; queries from `clear` on see all keys of its warpgroup. consume_keys has this in its loop: called from there, ptxas
/// lets 31 of 32 exponentials sink behind the wait for the sums.
template <class Shape>
__device__ __forceinline__ void weigh_scores(
    float (&scores)[Shape::kQueries / 2], const BackwardMemory<Shape>& memory, const BackwardProblem& p, int stage,
    int first_query, int clear, int key, int lane) {
    if (first_query < clear) {
        int begins[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int own = key + 8 * half;
            begins[half] = own >= p.keys ? Shape::kQueries : p.causal ? own - (p.keys - p.queries) - first_query : 0;
        }
        hide_scores(scores, begins, lane);
    }
#pragma unroll
    for (int j = 0; j < Shape::kQueries / 8; ++j) {
        const float2 shift = memory.pair(memory.shifts(stage), j, lane);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float* const pair = scores + 4 * j + 2 * half;
            pair[0] = Exp2()(pair[0] * p.scale - shift.x);
            pair[1] = Exp2()(pair[1] * p.scale - shift.y);
        }
    }
}

/// All tiles of a role. A step's first product is issued before the sums take the last step's weights, so that what is
/// computed from it runs beside that product.
template <class Shape, Order kOrder, int kRole>
__device__ __forceinline__ void consume_as(
    const BackwardMemory<Shape>& memory, const BackwardProblem& p, int warp, int lane) {
    using Element = typename Shape::Element;
    constexpr bool kScores = kRole == 0;
    constexpr int kPairs = Shape::kQueries / 8, kHalf = Shape::kHeadDim / 4;  // of a row's sums
    RingPosition<Shape::kStages> at;                                          // of queries and dO
    ShortRing<1> passed, key_at;  // of P, and dS with it; of keys and values
    // ptxas takes no instruction that needs more registers than launch bounds give.
    const auto issue_sums = [&](float (&sums)[2][kHalf], const uint32_t (&weights)[kPairs / 2][4], uint32_t rows) {
        issue_by_rows<Shape>(sums[0], weights, rows);
        issue_by_rows<Shape>(sums[1], weights, rows + Shape::kHeadDim / 128 * Shape::kQueryPitch);
    };
    const auto release = [&](uint32_t barrier) {
        __syncwarp();  // all lanes have read
        if (lane < kWarpArrivals) mbarrier_arrive(barrier);
    };
    // What the first product reads, with the numbers of its queries, and what the sums read a step later.
    const auto near = [&](int stage) { return kScores ? memory.queries(stage) : memory.out(stage); };
    const auto far = [&](int stage) { return kScores ? memory.out(stage) : memory.queries(stage); };
    const auto near_full = [&](int stage) { return kScores ? memory.queries_full(stage) : memory.out_full(stage); };
    const auto far_full = [&](int stage) { return kScores ? memory.out_full(stage) : memory.queries_full(stage); };
    const auto near_empty = [&](int stage) { return kScores ? memory.queries_empty(stage) : memory.out_empty(stage); };
    const auto far_empty = [&](int stage) { return kScores ? memory.out_empty(stage) : memory.queries_empty(stage); };
    const uint32_t own = kScores ? memory.keys(0) : memory.values(0);
    const uint32_t own_full = kScores ? memory.keys_full(0) : memory.values_full(0);
    const uint32_t own_empty = kScores ? memory.keys_empty(0) : memory.values_empty(0);
    // Rows of dS are queries, keys are columns: where this lane's rows of a transposed store begin.
    const uint32_t gradient =
        memory.gradients(0) + Swizzle<8>::offset(lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2);

    for (Board<Shape> board;;) {
        const KeyTile tile = board.read_by_warp(memory, lane);
        if (tile.head < 0) break;
        const int steps = tile.steps(p), first_key = tile.number * Shape::kKeys, key = first_key + warp * 16 + lane / 4;
        // Queries from here on see all keys.
        const int clear = first_key + Shape::kKeys > p.keys ? 0x7fffffff
                          : p.causal                        ? first_key + Shape::kKeys - 1 - (p.keys - p.queries)
                                                            : -0x7fffffff;
        float sums[2][kHalf];
#pragma unroll
        for (int i = 0; i < 2 * kHalf; ++i) sums[i / kHalf][i % kHalf] = 0.0f;

        if (steps > 0) {
            QueryOrder<kOrder> visit(p, tile);
            float products[Shape::kQueries / 2];
            uint32_t weights[kPairs / 2][4];  // P^T or dS^T
#pragma unroll
            for (int i = 0; i < kPairs * 2; ++i) weights[i / 4][i % 4] = 0;
            mbarrier_wait(own_full, key_at.parity());
            int before = at.stage;           // of the last step
            uint32_t rows = near(at.stage);  // what the last step's weights meet; in the first one zeros meet its own
            for (int step = 0; step < steps; ++step, visit.next(p, tile)) {
                const int stage = at.stage;
                mbarrier_wait(near_full(stage), at.parity);
                wgmma_fence();
                issue_by_columns<Shape>(products, own, near(stage));
                wgmma_commit();
                issue_sums(sums, weights, rows);
                wgmma_commit();
                wgmma_wait<1>();
                wgmma_results(products);
                if (step == steps - 1) release(own_empty);
                if constexpr (kScores) {
                    weigh_scores<Shape>(products, memory, p, stage, visit.tile * Shape::kQueries, clear, key, lane);
                } else {
                    subtract_deltas<Shape>(products, memory, stage, lane);
                }
                release(near_empty(stage));
                // As in consume_keys, waits at barriers keep what stands before them before the wait for the sums. That for P's
                // place stands here as well: behind it, it let five exponentials of 32 sink.
                mbarrier_wait(far_full(stage), at.parity);
                if constexpr (kScores) mbarrier_wait(memory.weights_empty(), passed.parity() ^ 1);
                wgmma_wait<0>();
                wgmma_results(sums[0]);
                wgmma_results(sums[1]);
                if (step > 0) release(far_empty(before));
                if constexpr (kScores) {
                    wgmma_results(products);
#pragma unroll
                    for (int i = 0; i < kPairs / 2; ++i) {
#pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            weights[i][j] = Element::pack(products[8 * i + 2 * j], products[8 * i + 2 * j + 1]);
                        }
                        *memory.weights(i, warp, lane) =
                            make_uint4(weights[i][0], weights[i][1], weights[i][2], weights[i][3]);
                    }
                    release(memory.weights_full());
                } else {
                    mbarrier_wait(memory.gradients_empty(0), passed.parity() ^ 1);
                    mbarrier_wait(memory.weights_full(), passed.parity());
                    wgmma_results(products);
#pragma unroll
                    for (int i = 0; i < kPairs / 2; ++i) {
                        const uint4 four = *memory.weights(i, warp, lane);
                        weights[i][0] = four.x, weights[i][1] = four.y, weights[i][2] = four.z, weights[i][3] = four.w;
                    }
                    release(memory.weights_empty());
#pragma unroll
                    for (int i = 0; i < kPairs / 2; ++i) {
                        weigh_differences<Element>(weights[i], products + 8 * i);
                        stmatrix_x4_trans(gradient + i * (16 * 128), weights[i]);
                    }
                    release(memory.gradients_full(0));  // other threads read it, not products
                }
                passed.advance();
                at.advance();
                before = stage;
                rows = far(stage);
            }
            wgmma_fence();
            issue_sums(sums, weights, rows);
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_results(sums[0]);
            wgmma_results(sums[1]);
            release(far_empty(before));
            key_at.advance();
        }

        if (kOrder != Order::kUp && tile.comes_in_parts(p)) {
            if (steps == 0) continue;
            float* const to = key_sums<Shape::kHeadDim, Shape::kRoleWarps>(p, tile.head, tile.number, kRole, warp);
            add_accumulators(sums[0], to, lane);
            add_accumulators(sums[1], to + kHalf * 32, lane);
            continue;
        }
        const int batch = tile.head / p.key_heads, key_head = tile.head % p.key_heads;
        const size_t pitch = static_cast<size_t>(p.key_heads) * (Shape::kHeadDim * 2);
        uint8_t* const to = (kScores ? p.dv : p.dk) + (static_cast<size_t>(batch) * p.keys + key) * pitch +
                            key_head * (Shape::kHeadDim * 2);
        const float factor = kScores ? 1.0f / (1 << Shape::kWeightShift) : p.softmax_scale;
        store_accumulators<Element>(sums[0], factor, to, pitch, p.keys - key, lane);
        store_accumulators<Element>(sums[1], factor, to + Shape::kHeadDim, pitch, p.keys - key, lane);
    }
}

}  // namespace attention
