// SPDX-License-Identifier: MIT
// A consumer warpgroup of the attention forward from e4m3 that is never waited for by tensor cores: two tiles of scores in registers.
//
// While one step's scores become weights, the product of the next step with its keys and that of the last step's weights with their
// values run. Both take their operands from shared memory, so that issuing them does not hold the warps.
#pragma once

#include "tile/wgmma_flash_fp8_consume.h"

/// All tiles of one consumer warpgroup.
template <class Shape>
__device__ __forceinline__ void consume_fp8_ahead(
    const Fp8FlashMemory<Shape>& memory, const Fp8FlashProblem& p, int group, int warp, int lane) {
    static_assert(Shape::kSharedWeights && !Shape::kHeldQuery && !Shape::kTurns && !Shape::kBlockScales, "not written");
    using Place = Fp8Place<Shape::kStages>;
    uint32_t key_count = 0, value_count = 0, tile_count = 0;
    Fp8FlashQuery<Shape> query;
    const auto release = [&](uint32_t barrier) {
        if (lane == 0) mbarrier_arrive(barrier);
    };

    for (;; ++tile_count) {
        const Fp8Place<Shape::kQueryStages> query_at(tile_count);
        mbarrier_wait(memory.query_full(query_at.stage), query_at.parity);
        const Fp8FlashTile& tile = memory.tile(tile_count);   // read whenever needed, to save registers
        const int steps = warp_uniform(tile.steps);
        if (steps < 0) break;
        // The query of this thread; its other one is eight further on.
        const auto row = [&] { return tile.first_query + group * 64 + warp * 16 + lane / 4; };
        float out[Shape::kHeadDim / 2];
        WeightRow rows[2];
#pragma unroll
        for (int i = 0; i < Shape::kHeadDim / 2; ++i) out[i] = 0.0f;

        if (steps > 0) {
            float factors[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int query = min(row() + 8 * half, p.queries - 1);
                factors[half] = p.scale * p.query_scales[p.query_grid.at(tile.batch, query, tile.head)] * tile.key_scale;
            }
            // The warpgroup's first row sees all keys of so many steps, its last one those of `own`.
            const int seen = tile.first_query + group * 64 + 1 + p.keys - p.queries;
            const int whole = (p.causal ? min(p.keys, seen) : p.keys) / Shape::kKeys;
            const int own = p.causal ? min(steps, max(1, ceil_div(seen + 63, Shape::kKeys))) : steps;
            const auto mask = [&](float (&scores)[Shape::kKeys / 2], int step) {
                if (step < whole) return;
                int limits[2];
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int last = p.causal ? row() + 8 * half + 1 + p.keys - p.queries : p.keys;
                    limits[half] = min(p.keys, last) - step * Shape::kKeys;
                }
                mask_fp8_scores(scores, limits, lane);
            };
            const auto wait_for_keys = [&](uint32_t count) {
                mbarrier_wait(memory.keys_full(Place(count).stage), Place(count).parity);
            };
            const auto wait_for_values = [&](uint32_t count) {
                mbarrier_wait(memory.values_full(Place(count).stage), Place(count).parity);
            };
            for (int i = own; i < steps; ++i) {   // what only later rows see
                wait_for_keys(key_count);
                release(memory.keys_empty(Place(key_count++).stage));
                wait_for_values(value_count);
                release(memory.values_empty(Place(value_count++).stage));
            }
            float scores_a[Shape::kKeys / 2], scores_b[Shape::kKeys / 2];
            // key_count: of the keys whose scores are used next.
            const auto start_scores = [&](float (&scores)[Shape::kKeys / 2], uint32_t count) {
                wgmma_fence();
                issue_fp8_scores<Shape>(scores, query, memory.keys(Place(count).stage));
                wgmma_commit();
            };
            query.load(memory.query(query_at.stage) + group * 64 * Shape::kRowBytes, warp, lane);
            wait_for_keys(key_count);
            start_scores(scores_a, key_count);
            wgmma_wait<0>();
            wgmma_results(scores_a);
            release(memory.keys_empty(Place(key_count).stage));
            if (own > 1) wait_for_keys(key_count + 1);
            start_scores(scores_b, key_count + 1);
            // A step whose scores have come, while the next one's may be on their way to `next`.
            const auto advance = [&](float (&scores)[Shape::kKeys / 2], float (&next)[Shape::kKeys / 2], int step) {
                float corrections[2];
                mask(scores, step);
                if constexpr (Shape::kHalves) {
                    const Fp8Softmax<Shape> softmax{rows, corrections, factors, {}};
                    softmax.first(scores);
                    softmax.second(scores);
                } else if constexpr (Shape::kVote) {
                    Fp8Softmax<Shape>{rows, corrections, factors, {}}.whole(scores);
                } else {
                    weigh_scores<false, Shape::kThreeAtOnce>(scores, rows, corrections, factors, {});
                }
                wait_for_values(value_count);   // whatever ends a basic block: see add_weights
                add_weights(scores, rows, 1.0f);
                uint32_t weights[Shape::kKeys / 32][4];
                pack_weights(weights, scores);
                if (step > 1) wait_for_keys(key_count + 2);
                wgmma_wait<0>();
                wgmma_results(out);
                wgmma_results(next);
                if (step > 0) release(memory.keys_empty(Place(key_count + 1).stage));
                if (step + 1 < own) release(memory.values_empty(Place(value_count - 1).stage));
                start_scores(scores, key_count + 2);   // of nothing in the last two steps
                ++key_count;
                store_weights<Shape>(weights, memory.weights(group), warp, lane);
                fence_async_shared();   // what ordinary stores wrote, wgmma reads
                named_barrier_sync(kFp8WeightsBarrier + group, 128);
                correct_fp8_rows(out, corrections);
                wgmma_fence();
                issue_fp8_output<Shape>(out, weights, memory.weights(group), memory.values(Place(value_count).stage));
                wgmma_commit();
                ++value_count;
            };
            for (int step = own - 1;;) {
                advance(scores_a, scores_b, step);
                if (--step < 0) break;
                advance(scores_b, scores_a, step);
                if (--step < 0) break;
            }
            release(memory.query_empty(query_at.stage));
            wgmma_wait<0>();
            wgmma_results(out);
            release(memory.values_empty(Place(value_count - 1).stage));
        } else {
            release(memory.query_empty(query_at.stage));
        }
        store_fp8_rows<Shape>(p, tile, row(), out, rows, lane);
        __syncwarp();   // all lanes have read what `tile` says before one lets its place be taken
    }
}
