// SPDX-License-Identifier: MIT
// A consumer warpgroup of the attention forward from e4m3 whose softmax is one stream of exponentials.
#pragma once

#include "tile/wgmma_flash_fp8_consume.h"

/// A step's scores become weights in four parts. Beside each part's exponentials stand the additions and conversions of the part
/// before, beside the first ones the second half's maxima; waits and votes keep these in basic blocks of their own, as the compiler
/// would make each addition wait for the exponential two before it.
template <class Shape>
struct Fp8Weave {
    static constexpr int kAll = Shape::kKeys / 2, kHalf = kAll / 2, kPart = kAll / 4;
    static_assert(kPart % 8 == 0, "an A operand's register has four weights of one row, the next one of the other");

    WeightRow rows[2];
    float corrections[2], factors[2], shifts[2], sums[2];
    Fp8StepScales step;

    __device__ __forceinline__ void shift() {
        const float log = kWeightBits + (Shape::kBlockScales ? step.value_log : 0.0f);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            // Before the first key: anything finite, as -inf - -inf would be NaN.
            shifts[half] = log - (rows[half].maximum == -INFINITY ? 0.0f : rows[half].maximum);
        }
    }

    /// The largest scores of half of them.
    template <int kBegin>
    __device__ __forceinline__ void look(const float (&scores)[kAll], float (&largest)[2]) const {
        const float (&part)[kHalf] = reinterpret_cast<const float (&)[kHalf]>(scores[kBegin]);
        if (kBegin == 0 && !__any_sync(0xffffffffu, !(rows[0].maximum + kSlackBits >= 0.0f && rows[1].maximum + kSlackBits >= 0.0f))) {
            largest_positive_scores(part, largest);
        } else {
            largest_scores(part, largest);
        }
    }

    /// Raise the rows' maxima to what was found, where a score of the warp exceeds one by more than the slack; the weights of
    /// scores before kBegin follow.
    template <int kBegin>
    __device__ __forceinline__ void raise(float (&scores)[kAll], const float (&largest)[2]) {
        const float log = Shape::kBlockScales ? step.value_log : 0.0f;
        const float found[2] = {fmaf(largest[0], factors[0], log), fmaf(largest[1], factors[1], log)};
        // False of NaN; before the first key true only of what is masked.
        const bool within = found[0] <= rows[0].maximum + kSlackBits && found[1] <= rows[1].maximum + kSlackBits;
        if (!__any_sync(0xffffffffu, !within)) return;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float factor = rows[half].raise(quad_maximum(found[half]));
            corrections[half] *= factor;
            sums[half] *= factor;
#pragma unroll
            for (int i = 2 * half; i < kBegin; i += 4) {
                scores[i] *= factor;
                scores[i + 1] *= factor;
            }
        }
        shift();
    }

    template <int kNumber>
    __device__ __forceinline__ void exponentiate(float (&scores)[kAll]) {
#pragma unroll
        for (int i = kNumber * kPart; i < (kNumber + 1) * kPart; ++i) {
            scores[i] = Exp2()(fmaf(scores[i], factors[i % 4 / 2], shifts[i % 4 / 2]));
            (Shape::kBlockScales ? sums[i % 4 / 2] : rows[i % 4 / 2].sum) += scores[i];
        }
    }

    /// Round a part's weights to A operands.
    template <int kNumber>
    static __device__ __forceinline__ void finish(uint32_t (&packed)[kAll / 16][4], const float (&weights)[kAll]) {
#pragma unroll
        for (int i = kNumber * kPart / 4; i < (kNumber + 1) * kPart / 4; ++i) {
            const float* const pair = weights + i / 2 * 8 + i % 2 * 2;   // and the pair eight keys further on
            packed[i / 4][i % 4] = pack_e4m3(pair[0], pair[1], pair[4], pair[5]);
        }
    }

    __device__ __forceinline__ void start() {
        corrections[0] = corrections[1] = 1.0f;
        sums[0] = sums[1] = 0.0f;
        shift();
    }
    __device__ __forceinline__ void add_up() {
        if constexpr (Shape::kBlockScales) {
            rows[0].sum += sums[0] * step.value_inverse;
            rows[1].sum += sums[1] * step.value_inverse;
        }
    }
};

/// A number in a type.
template <int kValue>
struct Fp8Count {
    static constexpr int value = kValue;
};

/// All tiles of one consumer warpgroup.
template <class Shape>
__device__ __forceinline__ void consume_fp8_woven(
    const Fp8FlashMemory<Shape>& memory, const Fp8FlashProblem& p, int group, int warp, int lane) {
    using Place = Fp8Place<Shape::kStages>;
    uint32_t key_count = 0, tile_count = 0;   // values are those of the step before
    Fp8FlashQuery<Shape> query;
    const int own_turn = kFp8TurnBarrier + group;
    const int next_turn = kFp8TurnBarrier + (group + 1) % Shape::kGroups;
    if (Shape::kTurns && group == Shape::kGroups - 1) named_barrier_arrive(next_turn, 256);   // the first turn is 0's
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
        Fp8Weave<Shape> weave;
#pragma unroll
        for (int i = 0; i < Shape::kHeadDim / 2; ++i) out[i] = 0.0f;

        if (steps > 0) {
            // Scores times factors are exponents of two. With scales per block, those of keys and values join in each step.
            float factors[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int query = min(row() + 8 * half, p.queries - 1);
                factors[half] = p.scale * p.query_scales[p.query_grid.at(tile.batch, query, tile.head)];
                if (!Shape::kBlockScales) factors[half] *= tile.key_scale;
            }
            Fp8StepScales next_scales;
            const auto wait_for_keys = [&] {
                const Place at(key_count);
                mbarrier_wait(memory.keys_full(at.stage), at.parity);
                if constexpr (Shape::kBlockScales) {
                    next_scales = memory.step_scales(at.stage);
                    __syncwarp();   // all lanes have read them when one gives the stage back
                }
            };
            const auto wait_for_values = [&](uint32_t count) {
                mbarrier_wait(memory.values_full(Place(count).stage), Place(count).parity);
            };
            // The warpgroup's first row sees all keys of so many steps; each further one sees one more, up to the end.
            const int whole =
                (p.causal ? min(p.keys, tile.first_query + group * 64 + 1 + p.keys - p.queries) : p.keys) / Shape::kKeys;
            uint32_t weights[Shape::kKeys / 32][4];
            float scores[Shape::kKeys / 2];
            const auto start_scores = [&] {
                wgmma_fence();
                issue_fp8_scores<Shape>(scores, query, memory.keys(Place(key_count).stage));
                wgmma_commit();
            };
            // From scores to weights. kBehind: groups of products issued after that with keys, 0 or 1: with values.
            const auto softmax = [&](auto behind, int step) {
                constexpr int kBehind = decltype(behind)::value;
                weave.step = next_scales;
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    weave.factors[half] = factors[half] * (Shape::kBlockScales ? next_scales.keys : 1.0f);
                }
                weave.start();
                wgmma_wait<kBehind>();
                wgmma_results(scores);
                release(memory.keys_empty(Place(key_count).stage));
                ++key_count;
                if (step >= whole) {
                    int limits[2];
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const int last = p.causal ? row() + 8 * half + 1 + p.keys - p.queries : p.keys;
                        limits[half] = min(p.keys, last) - step * Shape::kKeys;
                    }
                    mask_fp8_scores(scores, limits, lane);
                }
                float largest[2];
                constexpr int kHalf = Fp8Weave<Shape>::kHalf;
                weave.template look<0>(scores, largest);
                weave.template raise<0>(scores, largest);
                weave.template look<kHalf>(scores, largest);
                weave.template exponentiate<0>(scores);
                weave.template raise<Fp8Weave<Shape>::kPart>(scores, largest);
                if constexpr (kBehind > 0) {   // the product with values, which read the weights, is over
                    wgmma_wait<0>();
                    wgmma_results(out);
                    release(memory.values_empty(Place(key_count - 2).stage));
                }
                weave.template exponentiate<1>(scores);
                weave.template finish<0>(weights, scores);
                wait_for_values(key_count - 1);
                weave.template exponentiate<2>(scores);
                weave.template finish<1>(weights, scores);
                if (step > 0) wait_for_keys();
                weave.template exponentiate<3>(scores);
                weave.template finish<2>(weights, scores);
            };
            const auto start_output = [&](uint32_t count) {
                wgmma_fence();
                issue_fp8_output<Shape>(out, weights, memory.values(Place(count).stage));
                wgmma_commit();
            };

            query.load(memory.query(query_at.stage) + group * 64 * Shape::kRowBytes, warp, lane);
            if constexpr (Shape::kHeldQuery) {
                __syncwarp();   // all lanes have read what they wanted
                release(memory.query_empty(query_at.stage));
            }
            wait_for_keys();
            start_scores();
            softmax(Fp8Count<0>(), steps - 1);
            for (int step = steps - 2; step >= 0; --step) {
                weave.template finish<3>(weights, scores);
                weave.add_up();
                if constexpr (Shape::kTurns) named_barrier_sync(own_turn, 256);
                start_scores();
                correct_fp8_rows(out, weave.corrections);
                start_output(key_count - 1);
                if constexpr (Shape::kTurns) named_barrier_arrive(next_turn, 256);
                softmax(Fp8Count<1>(), step);
            }
            weave.template finish<3>(weights, scores);
            weave.add_up();
            if constexpr (!Shape::kHeldQuery) release(memory.query_empty(query_at.stage));
            correct_fp8_rows(out, weave.corrections);
            start_output(key_count - 1);
            wgmma_wait<0>();
            wgmma_results(out);
            release(memory.values_empty(Place(key_count - 1).stage));
        } else {
            release(memory.query_empty(query_at.stage));
        }
        store_fp8_rows<Shape>(p, tile, row(), out, weave.rows, lane);
        __syncwarp();   // all lanes have read what `tile` says before one lets its place be taken
    }
    if (Shape::kTurns && group == 0) named_barrier_sync(own_turn, 256);   // takes the turn that nobody needs
}
