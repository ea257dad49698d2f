// SPDX-License-Identifier: MIT
// A consumer warpgroup of the attention forward from e4m3 on wgmma: two products and a softmax per step of keys.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/fp8_shape.h"
#include "attention/fp8_softmax.h"
#include "common/ring.h"
#include "common/swizzle.h"
#include "common/wide_rows.h"
#include "ptx/barrier.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/thread.h"
#include "ptx/wgmma.h"

namespace attention {

constexpr int kFp8PingPongBarrier = 1;  // and those after it, one per consumer warpgroup

/// The operand of rows as TMA brought them, and how far 32 columns further are (in units of a descriptor).
template <class Shape>
__device__ __forceinline__ uint64_t fp8_rows_operand(uint32_t rows) {
    return Shape::kRowBytes == 128 ? wgmma_operand(rows) : wgmma_operand_64(rows);
}
/// An operand further on by `offset`, in units of 16 bytes: only the low half, which has room, is added to.
__device__ __forceinline__ uint64_t operand_at(uint64_t operand, uint32_t offset) {
    return (operand & 0xffffffff00000000ull) | (static_cast<uint32_t>(operand) + offset);
}
template <class Shape>
__device__ __forceinline__ constexpr uint32_t fp8_columns_offset(int c, int pitch) {
    return c * 32 / Shape::kRowBytes * (pitch >> 4) + c * 32 % Shape::kRowBytes / 16;
}

/// The 64 query rows of a warpgroup as the A operand: where they lie in shared memory, or this thread's fragments of them.
template <class Shape, bool kHeld = Shape::kHeldQuery>
struct Fp8FlashQuery {
    uint64_t operand;

    __device__ __forceinline__ void load(uint32_t rows, int, int) { operand = fp8_rows_operand<Shape>(rows); }
    template <int kCount>
    __device__ __forceinline__ void multiply(float (&scores)[kCount], int c, uint64_t keys) const {
        Wgmma<2 * kCount>::product(
            scores, operand_at(operand, fp8_columns_offset<Shape>(c, Shape::kQueryPitch)), keys, c > 0);
    }
};
template <class Shape>
struct Fp8FlashQuery<Shape, true> {
    uint32_t fragments[Shape::kHeadDim / 32][4];

    __device__ __forceinline__ void load(uint32_t rows, int warp, int lane) {
        constexpr int kPieces = Shape::kRowBytes / 32;
#pragma unroll
        for (int c = 0; c < Shape::kHeadDim / 32; ++c) {
            ldmatrix_x4(
                fragments[c],
                rows + c / kPieces * Shape::kQueryPitch +
                    Swizzle<Shape::kRowChunks>::offset(warp * 16 + lane % 16, c % kPieces * 2 + lane / 16));
        }
    }
    template <int kCount>
    __device__ __forceinline__ void multiply(float (&scores)[kCount], int c, uint64_t keys) const {
        Wgmma<2 * kCount>::product(scores, fragments[c], keys, c > 0);
    }
};

/// Issue scores = Q K^T for 2 * kCount keys.
template <class Shape, int kCount>
__device__ __forceinline__ void issue_fp8_scores(
    float (&scores)[kCount], const Fp8FlashQuery<Shape>& query, uint32_t keys) {
    const uint64_t b = fp8_rows_operand<Shape>(keys);
#pragma unroll
    for (int c = 0; c < Shape::kHeadDim / 32; ++c) {
        query.multiply(scores, c, operand_at(b, fp8_columns_offset<Shape>(c, Shape::kKeyPitch)));
    }
}

/// Issue out = P V, plus what out was if `add`, for 32 * kCount keys.
template <class Shape, int kCount>
__device__ __forceinline__ void issue_fp8_output(
    float (&out)[Shape::kHeadDim / 2], const uint32_t (&weights)[kCount][4], uint32_t values, bool add) {
    const uint64_t b = Shape::kValueRow == 128 ? wgmma_operand(values) : wgmma_operand_64(values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        const uint32_t offset = i * 32 / Shape::kValueRow * (Shape::kValuePitch >> 4) + i * 32 % Shape::kValueRow / 16;
        Wgmma<Shape::kHeadDim>::product(out, weights[i], operand_at(b, offset), add || i > 0);
    }
}

/// Whether the sign of any packed weight is set: never, but only the packed registers tell. Makes what follows wait for them.
template <int kCount>
__device__ __forceinline__ int sign_of_weights(const uint32_t (&weights)[kCount][4]) {
    uint32_t all = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) all |= weights[i][0] | weights[i][1] | weights[i][2] | weights[i][3];
    return static_cast<int>(all >> 31);
}

/// All tiles of one consumer warpgroup. The scores of the next step are on their way while the values of the last one are
/// multiplied. A tile's output is written when the next one's first keys are there, before its first scores are issued.
template <class Shape>
__device__ __forceinline__ void consume_fp8_flash(
    const Fp8FlashMemory<Shape>& memory, const Fp8FlashProblem& p, int group, int warp, int lane) {
    RingPosition<Shape::kStages> keys_at;
    RingPosition<Shape::kValueStages> values_at;  // of the product to be issued, or issued and not finished
    uint32_t tile_count = 0;
    Fp8FlashQuery<Shape> query;
    const int own_barrier = kFp8PingPongBarrier + group;
    const int next_barrier = kFp8PingPongBarrier + (group + 1) % Shape::kGroups;
    if (Shape::kPingPong && group == Shape::kGroups - 1)
        named_barrier_arrive(next_barrier, 256);  // the first turn is 0's
    const auto release = [&](uint32_t barrier) {
        if (lane == 0) mbarrier_arrive(barrier);
    };

    float out[Shape::kHeadDim / 2];
    float out_factors[2];
#pragma unroll
    for (int i = 0; i < Shape::kHeadDim / 2; ++i) out[i] = 0.0f;
    // The first query of this thread; its other one is eight further on.
    const auto row_of = [](const Fp8FlashTile& tile, int thread) {
        return tile.first_query + thread / 32 * 16 + thread % 32 / 4;
    };
    const auto release_values = [&] {
        release(memory.values_empty(values_at.stage));
        values_at.advance();
    };
    // Write the output of the tile before, if there was one.
    const auto write_before = [&] {
        wgmma_results(out);
        if (tile_count == 0) return;
        const Fp8FlashTile& tile = memory.tile(tile_count - 1);
        const int thread = recomputed_thread();  // found anew once per tile, to save registers
        store_fp8_rows<Shape>(p, tile, row_of(tile, thread), out, out_factors, thread % 32);
        __syncwarp();  // all lanes have read what `tile` says before one lets its place be taken
    };

    // Wait for a tile. Returns its steps. If it has any, its queries are ready for products.
    const auto receive = [&](uint32_t count) {
        const Fp8Place<Shape::kQueryStages> at(count);
        mbarrier_wait(memory.query_full(at.stage), at.parity);
        const int steps = warp_uniform(memory.tile(count).steps);
        if (steps > 0) query.load(memory.query(at.stage) + group * 64 * Shape::kRowBytes, warp, lane);
        if (Shape::kHeldQuery || steps == 0) {
            __syncwarp();  // all lanes have read what they wanted
            release(memory.query_empty(at.stage));
        }
        return steps;
    };

    for (int steps = receive(0);;) {
        const Fp8FlashTile& tile = memory.tile(tile_count);  // read whenever needed, to save registers
        const auto row = [&] { return tile.first_query + group * 64 + warp * 16 + lane / 4; };
        WeightRow rows[2];
        if (Shape::kTail > 0 ? steps < 0 : steps <= 0) {  // a tail tells that all rows see keys
            wgmma_wait<0>();  // nothing is under way; but without it ptxas serialises products
            write_before();
            if (steps < 0) break;
            finish_fp8_rows<Shape>(p, tile, row(), rows, out_factors, lane);
#pragma unroll
            for (int i = 0; i < Shape::kHeadDim / 2; ++i) out[i] = 0.0f;
            steps = receive(++tile_count);
        } else {
            // Scores times factors are exponents of two. With scales per block, those of keys and values join in each step.
            float factors[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if constexpr (Shape::kBlockScales) {
                    const int query = min(row() + 8 * half, p.queries - 1);
                    factors[half] = p.scale * p.query_scales[p.query_grid.at(tile.batch, query, tile.head)];
                } else {
                    factors[half] = tile.factor;
                }
            }
            Fp8StepScales step_scales;
            const auto wait_for_keys = [&] {
                mbarrier_wait(memory.keys_full(keys_at.stage), keys_at.parity);
                if constexpr (Shape::kBlockScales) {
                    step_scales = memory.step_scales(keys_at.stage);
                    __syncwarp();  // all lanes have read them when one gives the stage back
                }
            };
            // The warpgroup's first row sees all keys of so many steps; each further one sees one more, up to the end.
            const bool causal = Shape::kTail == 0 && p.causal;
            const int unmasked =
                (causal ? min(p.keys, tile.first_query + group * 64 + 1 + p.keys - p.queries) : p.keys) / Shape::kKeys;
            const auto softmax = [&](auto& scores, float (&corrections)[2], int step) {
                constexpr bool kIsTail = sizeof(scores) < Shape::kKeys / 2 * sizeof(float);
                if (Shape::kTail > 0 ? kIsTail : step >= unmasked) {
                    int limits[2];
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const int last = causal ? row() + 8 * half + 1 + p.keys - p.queries : p.keys;
                        limits[half] = min(p.keys, last) - step * Shape::kKeys;
                    }
                    mask_fp8_scores(scores, limits, lane);
                }
                if constexpr (Shape::kBlockScales) {
                    const float scaled[2] = {factors[0] * step_scales.keys, factors[1] * step_scales.keys};
                    weigh_scores<Shape>(scores, rows, corrections, scaled, step_scales);
                } else {
                    weigh_scores<Shape>(scores, rows, corrections, factors, {});
                }
            };
            uint32_t weights[Shape::kKeys / 32][4];
            // What a step leaves for the next one: weights to be packed, and what out is yet to be multiplied with.
            float scores[Shape::kKeys / 2], corrections[2];
            const auto start_scores = [&](auto& scores) {
                wgmma_fence();
                issue_fp8_scores<Shape>(scores, query, memory.keys(keys_at.stage));
                wgmma_commit();
            };
            const auto finish_scores = [&](auto& scores) {
                wgmma_results(scores);
                release(memory.keys_empty(keys_at.stage));
                keys_at.advance();
            };
            const auto start_output = [&](const auto& weights, bool add) {
                mbarrier_wait(memory.values_full(values_at.stage), values_at.parity);
                wgmma_fence();
                issue_fp8_output<Shape>(out, weights, memory.values(values_at.stage), add);
                wgmma_commit();
            };
            // The first scores of a tile, before which the output of the one before is written.
            const auto first_scores = [&](auto& scores) {
                wait_for_keys();
                write_before();
                start_scores(scores);
                wgmma_wait<0>();
                finish_scores(scores);
                softmax(scores, corrections, steps - 1);
                corrections[0] = corrections[1] = 1.0f;  // there is no output yet
            };
            // `issued`: a product with values was.
            const auto finish_output = [&](bool issued) {
                wgmma_wait<0>();
                wgmma_results(out);
                if (issued) release_values();
                wgmma_results(scores);  // packed only now: until here the product read the last weights
                pack_weights(weights, scores);
                if constexpr (!Shape::kRescaleEarly) correct_fp8_rows(out, corrections);
            };

            if constexpr (Shape::kTail > 0) {  // by itself: beside the next scores ptxas would serialise products
                float tail[Shape::kTail / 2];
                uint32_t tail_weights[Shape::kTail / 32][4];
                first_scores(tail);
                pack_weights(tail_weights, tail);
                start_output(tail_weights, false);
                wgmma_wait<0>();
                wgmma_results(out);
                release_values();
            }
            const int whole_steps = steps - (Shape::kTail > 0 ? 1 : 0);
            if constexpr (Shape::kTail > 0) {
                wait_for_keys();
                start_scores(scores);
                wgmma_wait<0>();
                finish_scores(scores);
                softmax(scores, corrections, whole_steps - 1);
            } else {
                first_scores(scores);
            }
            for (int step = whole_steps - 2; step >= 0; --step) {
                wait_for_keys();  // first, which also keeps the compiler from waiting for out before the exponentials
                finish_output(step < whole_steps - 2);
                if constexpr (Shape::kPingPong) named_barrier_sync(own_barrier + sign_of_weights(weights), 256);
                start_scores(scores);
                if constexpr (Shape::kRescaleEarly) correct_fp8_rows(out, corrections);
                start_output(weights, Shape::kTail > 0 || step < whole_steps - 2);
                if constexpr (Shape::kPingPong) named_barrier_arrive(next_barrier, 256);
                wgmma_wait<1>();
                finish_scores(scores);
                softmax(scores, corrections, step);
            }
            if constexpr (!Shape::kHeldQuery) {
                release(memory.query_empty(Fp8Place<Shape::kQueryStages>(tile_count).stage));
            }
            // Here, too, a wait in front: the last values come after those still being multiplied.
            auto last = values_at;
            if (whole_steps > 1) last.advance();
            mbarrier_wait(memory.values_full(last.stage), last.parity);
            finish_output(whole_steps > 1);
            if constexpr (Shape::kRescaleEarly) correct_fp8_rows(out, corrections);
            start_output(weights, Shape::kTail > 0 || whole_steps > 1);
            finish_fp8_rows<Shape>(p, tile, row(), rows, out_factors, lane);
            steps = receive(tile_count + 1);
            wgmma_wait<0>();
            wgmma_results(out);
            release_values();
            ++tile_count;
        }
    }
    if (Shape::kPingPong && group == 0)
        named_barrier_sync(
            own_barrier, 256);  // consume the last ping-pong arrival so that the barrier's counts balance
}

}  // namespace attention
