// SPDX-License-Identifier: MIT
// A consumer warpgroup of the Hopper attention forward.
//
// Its steps follow each other without a seam, also from one tile of queries to the next: the next step's product with the
// keys is issued together with this step's product with the values, whosever queries they are, and a finished output is
// stored while other warpgroups multiply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ptx/ldmatrix.h"
#include "ptx/mbarrier.h"
#include "ptx/mma_16bit.h"
#include "ptx/named_barrier.h"
#include "ptx/wgmma_16bit.h"
#include "tile/swizzle.h"
#include "tile/wide_rows.h"
#include "tile/wgmma_flash_shape.h"
#include "tile/wgmma_flash_softmax.h"
#include "tile/wgmma_shape.h"

#ifndef ROWS
#define ROWS 0
#endif
#ifndef PACK
#define PACK 0
#endif
#ifndef TRUST
#define TRUST 0
#endif
constexpr int kFlashTurnBarrier = 1;   // and those after it, one per consumer warpgroup

/// The 64 query rows of a warpgroup as the A operand: where they lie in shared memory, or this thread's fragments of them.
template <class Shape, bool kHeld = Shape::kHeldQuery>
struct FlashQuery {
    uint64_t operand;

    __device__ __forceinline__ void load(uint32_t rows, int, int) { operand = wgmma_operand(rows); }
    /// Columns 16c .. 16c + 15 of the warp's rows, as mma.sync wants them.
    __device__ __forceinline__ void fragment(uint32_t (&a)[4], int c, uint32_t rows, int warp, int lane) const {
        ldmatrix_x4(a, rows + c / 4 * Shape::kQueryPitch + Swizzle<8>::offset(warp * 16 + lane % 16, c % 4 * 2 + lane / 16));
    }
    __device__ __forceinline__ void multiply(float (&scores)[Shape::kKeys / 2], int c, uint64_t keys) const {
        Wgmma16<Shape::kKeys, typename Shape::Element>::product(
            scores, operand + c / 4 * (Shape::kQueryPitch >> 4) + c % 4 * 2, keys, c > 0);
    }
};
template <class Shape>
struct FlashQuery<Shape, true> {
    uint32_t fragments[Shape::kHeadDim / 16][4];

    __device__ __forceinline__ void load(uint32_t rows, int warp, int lane) {
#pragma unroll
        for (int c = 0; c < Shape::kHeadDim / 16; ++c) {
            ldmatrix_x4(fragments[c], rows + c / 4 * Shape::kQueryPitch +
                                          Swizzle<8>::offset(warp * 16 + lane % 16, c % 4 * 2 + lane / 16));
        }
    }
    __device__ __forceinline__ void fragment(uint32_t (&a)[4], int c, uint32_t, int, int) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = fragments[c][i];
    }
    __device__ __forceinline__ void multiply(float (&scores)[Shape::kKeys / 2], int c, uint64_t keys) const {
        Wgmma16<Shape::kKeys, typename Shape::Element>::product(scores, fragments[c], keys, c > 0);
    }
};

/// Issue scores = Q K^T.
template <class Shape>
__device__ __forceinline__ void issue_scores(
    float (&scores)[Shape::kKeys / 2], const FlashQuery<Shape>& query, uint32_t keys) {
    const uint64_t b = wgmma_operand(keys);
#pragma unroll
    for (int c = 0; c < Shape::kHeadDim / 16; ++c) {
        query.multiply(scores, c, b + c / 4 * (Shape::kKeyPitch >> 4) + c % 4 * 2);
    }
}

/// One warp's share of Q K^T by mma.sync, for when a step's scores were lost.
template <class Shape>
__device__ __forceinline__ void multiply_again(
    float (&scores)[Shape::kKeys / 2], const FlashQuery<Shape>& query, uint32_t rows, uint32_t keys, int warp, int lane) {
    constexpr int kPairs = Shape::kHeadDim / 32;
    [[maybe_unused]] constexpr int kUnrolled = Shape::kHeldQuery ? kPairs : 1;
#pragma unroll 1   // with few registers
    for (int j = 0; j < Shape::kKeys / 8; ++j) {
        float d[4] = {};
#pragma unroll kUnrolled
        for (int pair = 0; pair < kPairs; ++pair) {
            uint32_t a[4], b[4];
            ldmatrix_x4(b, keys + pair / 2 * Shape::kKeyPitch + Swizzle<8>::offset(8 * j + lane % 8, pair % 2 * 4 + lane / 8));
            query.fragment(a, 2 * pair, rows, warp, lane);
            Shape::Element::mma_m16n8k16(d, a, b[0], b[1]);
            query.fragment(a, 2 * pair + 1, rows, warp, lane);
            Shape::Element::mma_m16n8k16(d, a, b[2], b[3]);
        }
#pragma unroll
        for (int i = 0; i < Shape::kKeys / 2; ++i) {
            if (i / 4 == j) scores[i] = d[i % 4];
        }
    }
    __syncwarp();   // all lanes have read
}

/// Issue out += P V.
template <class Shape>
__device__ __forceinline__ void issue_output(
    float (&out)[Shape::kHeadDim / 2], const uint32_t (&probabilities)[Shape::kKeys / 16][4], uint32_t values) {
    const uint64_t b = wgmma_operand_transposed(values, Shape::kKeyPitch);
#pragma unroll
    for (int i = 0; i < Shape::kKeys / 16; ++i) {
        Wgmma16<Shape::kHeadDim, typename Shape::Element, true>::product(out, probabilities[i], b + i * 128, true);
    }
}

/// Where a warpgroup stands in the rings.
template <class Shape>
struct FlashConsumer {
    const FlashMemory<Shape>& memory;
    const FlashProblem& p;
    int group, lane;
    RingPosition<Shape::kKeyStages> key_at;
    RingPosition<Shape::kValueStages> value_at;

    __device__ __forceinline__ void release(uint32_t barrier) const {
        if (lane == 0) mbarrier_arrive(barrier);
    }

    /// Wait for a tile and its queries.
    __device__ __forceinline__ FlashTile receive(unsigned number) const {
        mbarrier_wait(memory.query_full(memory.slot(group, number)), memory.parity(number));
        return memory.tile(group, number);
    }
    __device__ __forceinline__ uint32_t query(unsigned number) const { return memory.query(memory.slot(group, number)); }
    __device__ __forceinline__ void release_query(unsigned number) const {
        __syncwarp();   // all lanes have read what they wanted
        release(memory.query_empty(memory.slot(group, number)));
    }
    /// Steps of a tile in which this warpgroup sees keys. Others see up to one more, in the beginning, or have rows where it
    /// has none.
    __device__ __forceinline__ int own_steps(const FlashTile& tile) const {
        return tile.steps == kFlashNoTile ? 0 : flash_steps<Shape>(p, tile.first_query + group * 64, 64);
    }
    __device__ __forceinline__ void release_keys() {
        release(memory.keys_empty(key_at.stage));
        key_at.advance();
    }
    __device__ __forceinline__ void release_values() {
        release(memory.values_empty(value_at.stage));
        value_at.advance();
    }
    __device__ __forceinline__ void skip_keys() {
        mbarrier_wait(memory.keys_full(key_at.stage), key_at.parity);
        release_keys();
    }
    /// Let a step's values and turn pass, once the values before are done with.
    __device__ __forceinline__ void skip_values() {
        mbarrier_wait(memory.values_full(value_at.stage), value_at.parity);
        release_values();
        if constexpr (Shape::kTurns) {
            wait_for_turn();
            hand_on_turn();
        }
    }
    __device__ __forceinline__ void wait_for_turn() const { named_barrier_sync(kFlashTurnBarrier + group, 256); }
    __device__ __forceinline__ void hand_on_turn() const {
        named_barrier_arrive(kFlashTurnBarrier + (group + 1 == Shape::kGroups ? 0 : group + 1), 256);
    }
};

/// All tiles of one consumer warpgroup.
template <class Shape>
__device__ __forceinline__ void consume_flash(
    const FlashMemory<Shape>& memory, const FlashProblem& p, int group, int lane) {
    FlashConsumer<Shape> at = {memory, p, group, lane, {}, {}};
    if (Shape::kTurns && group == Shape::kGroups - 1) at.hand_on_turn();   // the first turn is 0's
    FlashQuery<Shape> query;
    // A step leaves for the next one: probabilities yet to be packed, and what out is yet to be multiplied with.
    float scores[Shape::kKeys / 2], out[Shape::kHeadDim / 2], corrections[2];
    uint32_t probabilities[Shape::kKeys / 16][4];
    SoftmaxRow rows[2];

    constexpr bool kTrust = TRUST != 0 && Shape::kSlack > 0;
    constexpr bool kPack = kTrust;
    // bf16 reaches as far as fp32; P must not overflow fp16.
    constexpr float kLimit = std::is_same<typename Shape::Element, Fp16>::value ? 0x1p15f : 0x1p24f;
    TrustingSoftmax<Shape::kSlack, Shape::kKeys / 2> trusting;
    const auto pack = [&](int from, int to) {
#pragma unroll
        for (int i = 0; i < Shape::kKeys / 4; ++i) {
            if (i >= from && i < to) probabilities[i / 4][i % 4] = Shape::Element::pack(scores[2 * i], scores[2 * i + 1]);
        }
    };
    // `older`: out belongs to the tile before.
    const auto softmax = [&](int first_query, int step, unsigned number, bool older, const auto& between) {
        const auto mask = [&] {
            // The warpgroup's first row sees so many keys; each further one sees one more, up to the end.
            const int first_row = first_query + group * 64, first_key = step * Shape::kKeys;
            const int seen = p.causal ? min(p.keys, first_row + 1 + p.keys - p.queries) : p.keys;
            if (first_key + Shape::kKeys > seen) {
                const int thread = recomputed_thread();
                int limits[2];
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int row = first_query + thread / 32 * 16 + thread % 32 / 4 + 8 * half;
                    limits[half] = min(p.keys, p.causal ? row + 1 + p.keys - p.queries : p.keys) - first_key;
                }
                mask_scores(scores, limits, thread % 32);
            }
        };
        mask();
        if constexpr (kTrust) {
            constexpr int kAll = Shape::kKeys / 2, kHalf = kAll / 8 * 4;
            trusting.begin(scores, rows);
            SoftmaxPart<0, kHalf>::exponentiate(scores, rows, p.scale);
            between();
            pack(0, kHalf / 2);
            SoftmaxPart<kHalf, kAll - kHalf>::exponentiate(scores, rows, p.scale);
            pack(kHalf / 2, kAll / 2);
            if (trusting.exceeds(rows, kLimit)) {
                float factors[2];
                trusting.mend(scores, rows, factors, p.scale, kLimit, [&] {
                    multiply_again<Shape>(
                        scores, query, at.query(number), memory.keys(at.key_at.stage), recomputed_thread() / 32 % 4,
                        recomputed_thread() % 32);
                    mask();
                });
                pack(0, kAll / 2);
                if (!older) {
#pragma unroll
                    for (int i = 0; i < Shape::kHeadDim / 2; ++i) out[i] *= factors[i % 4 / 2];
                }
            }
        } else {
            softmax_scores<Shape::kSlack, Shape::kHalves>(scores, rows, corrections, p.scale);
        }
        at.release_keys();
    };
    float factors[2];   // of a finished output
    const auto first_row_of = [&](const FlashTile& tile) {   // of this thread
        return tile.first_query + recomputed_thread() / 32 * 16 + recomputed_thread() % 32 / 4;
    };
    const auto finish = [&](unsigned number) {
        const FlashTile& tile = memory.tile(group, number);
        finish_rows(p, tile, first_row_of(tile), rows, factors, recomputed_thread() % 32);
    };
    const auto store = [&](unsigned number) {
        const FlashTile& tile = memory.tile(group, number);
        store_rows<Shape>(p, tile, first_row_of(tile), out, factors, recomputed_thread() % 32);
#pragma unroll
        for (int i = 0; i < Shape::kHeadDim / 2; ++i) out[i] = 0.0f;
    };
#pragma unroll
    for (int i = 0; i < Shape::kHeadDim / 2; ++i) out[i] = 0.0f;

    unsigned number = 0;   // of the tile
    while (true) {
        const FlashTile first = at.receive(number);
        if (first.steps == kFlashNoTile) break;
        int step = at.own_steps(first) - 1, first_query = first.first_query;
        rows[0] = rows[1] = SoftmaxRow();
        if (step < 0) {   // no rows here, or none that sees a key
            at.release_query(number);   // at once: others may wait for keys that are loaded after the next tile's queries
            for (int i = 0; i < first.steps; ++i) {
                at.skip_keys();
                at.skip_values();
            }
            finish(number);
            store(number);
            ++number;
            continue;
        }

        // A first step, beside which nothing runs.
        int skipped = first.steps - 1 - step, skipped_next = 0;   // whose values are yet to be let pass
        for (int i = 0; i < skipped; ++i) at.skip_keys();
        query.load(at.query(number), recomputed_thread() / 32 % 4, lane);
        if constexpr (Shape::kHeldQuery) at.release_query(number);
        mbarrier_wait(memory.keys_full(at.key_at.stage), at.key_at.parity);
        wgmma_fence();
        issue_scores<Shape>(scores, query, memory.keys(at.key_at.stage));
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_results(scores);
        trusting.fresh = true;
        softmax(first_query, step, number, false, [] {});

        bool issued = false, finished = false;   // the product with values of a step; of a whole tile:
        const auto finish_output = [&] {
            if constexpr (!kPack) {
                wgmma_wait<0>();
                wgmma_results(out);
                if (issued) at.release_values();
                wgmma_results(scores);   // packed only now: until here the product read the last probabilities
                pack(0, Shape::kKeys / 4);
            }
            for (; skipped > 0; --skipped) at.skip_values();
            if (finished) {
                store(number - 1);
                finished = false;
            } else if (!kTrust && !Shape::kEarlyFactors && issued) {
                correct_rows<Shape::kSlack>(out, corrections);
            }
            if constexpr (Shape::kTurns) at.wait_for_turn();
        };

        int next_query = 0;
        while (true) {
            const bool last = step == 0;
            if (last) {
                if constexpr (!Shape::kHeldQuery) at.release_query(number);
                // Not while a turn is yet to be let pass: others need it to get as far as the next tile.
                if (!Shape::kSeamless || skipped > 0) break;
                const FlashTile next = at.receive(number + 1);
                step = at.own_steps(next);
                if (step == 0) break;   // a tile that is none of this warpgroup's
                next_query = next.first_query;
                skipped_next = next.steps - step;
                for (int i = 0; i < skipped_next; ++i) at.skip_keys();
                query.load(at.query(number + 1), recomputed_thread() / 32 % 4, lane);
                if constexpr (Shape::kHeldQuery) at.release_query(number + 1);
            }
            --step;
            // Waiting for keys first also keeps the compiler from waiting for out before the exponentials.
            mbarrier_wait(memory.keys_full(at.key_at.stage), at.key_at.parity);
            finish_output();
            wgmma_fence();
            issue_scores<Shape>(scores, query, memory.keys(at.key_at.stage));
            wgmma_commit();
            if constexpr (!kTrust && Shape::kEarlyFactors) correct_rows<Shape::kSlack>(out, corrections);
            mbarrier_wait(memory.values_full(at.value_at.stage), at.value_at.parity);
            wgmma_fence();
            issue_output<Shape>(out, probabilities, memory.values(at.value_at.stage));
            wgmma_commit();
            if constexpr (Shape::kTurns) at.hand_on_turn();
            issued = true;
            wgmma_wait<1>();
            wgmma_results(scores);
            if (last) {
                finish(number);
                rows[0] = rows[1] = SoftmaxRow();
                trusting.fresh = true;
                first_query = next_query;
                ++number;
                skipped = skipped_next;
                finished = true;
            }
            softmax(first_query, step, number, last, [&] {
                // Waiting for what has come keeps the compiler from waiting for out before the first row's exponentials.
                mbarrier_wait(memory.values_full(at.value_at.stage), at.value_at.parity);
                wgmma_wait<0>();
                wgmma_results(out);
                at.release_values();
            });
        }

        // A last step, beside which nothing runs.
        finish_output();
        if constexpr (!kTrust && Shape::kEarlyFactors) correct_rows<Shape::kSlack>(out, corrections);
        mbarrier_wait(memory.values_full(at.value_at.stage), at.value_at.parity);
        wgmma_fence();
        issue_output<Shape>(out, probabilities, memory.values(at.value_at.stage));
        wgmma_commit();
        if constexpr (Shape::kTurns) at.hand_on_turn();
        wgmma_wait<0>();
        wgmma_results(out);
        at.release_values();
        finish(number);
        store(number);
        ++number;
    }
    if (Shape::kTurns && group == 0) at.wait_for_turn();   // takes the turn that nobody needs
}
