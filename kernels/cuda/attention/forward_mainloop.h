// SPDX-License-Identifier: MIT
// The main loop of the Hopper attention forward: the two products of a step, and what a consumer warpgroup does with them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/forward_shape.h"
#include "attention/forward_softmax.h"
#include "common/ring.h"
#include "common/swizzle.h"
#include "common/wide_rows.h"
#include "ptx/barrier.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/mma.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace attention {

// The products of a consumer warpgroup of the Hopper attention forward.

/// Issue scores = Q K^T.
template <class Shape>
__device__ __forceinline__ void issue_scores(float (&scores)[Shape::kKeys / 2], uint32_t query, uint32_t keys) {
    const uint64_t a = wgmma_operand(query), b = wgmma_operand(keys);
#pragma unroll
    for (int c = 0; c < Shape::kHeadDim / 16; ++c) {
        Wgmma16<Shape::kKeys, typename Shape::Element>::product(
            scores, a + c / 4 * (Shape::kQueryPitch >> 4) + c % 4 * 2, b + c / 4 * (Shape::kKeyPitch >> 4) + c % 4 * 2,
            c > 0);
    }
}

/// One warp's share of Q K^T by mma.sync, whose sums lie as wgmma's, for when a step's scores were lost: no other warp needs to
/// take part.
template <class Shape>
__device__ __forceinline__ void multiply_again(
    float (&scores)[Shape::kKeys / 2], uint32_t query, uint32_t keys, int warp, int lane) {
    // Where 16 bytes of a row lie, eight columns.
    const auto chunk = [](uint32_t rows, int pitch, int row, int column) {
        return rows + column / 8 * pitch + Swizzle<8>::offset(row, column % 8);
    };
    // Keys at a time. With P in shared memory scores take nearly all registers: sums of a few keys at a time are put among them.
    constexpr int kAtOnce = Shape::kSharedP ? 8 : Shape::kKeys;
#pragma unroll 1
    for (int part = 0; part < Shape::kKeys / kAtOnce; ++part) {
        float sums[kAtOnce / 8][4] = {};
#pragma unroll 1  // with few instructions
        for (int c = 0; c < Shape::kHeadDim / 8; c += 2) {
            uint32_t a[4], b[kAtOnce / 8][2];
            ldmatrix_x4(a, chunk(query, Shape::kQueryPitch, warp * 16 + lane % 16, c + lane / 16));
#pragma unroll
            for (int j = 0; j < kAtOnce / 8; ++j) {
                ldmatrix_x2(b[j], chunk(keys, Shape::kKeyPitch, part * kAtOnce + 8 * j + lane % 8, c + lane / 8 % 2));
            }
#pragma unroll
            for (int j = 0; j < kAtOnce / 8; ++j) Shape::Element::mma_m16n8k16(sums[j], a, b[j][0], b[j][1]);
        }
#pragma unroll
        for (int i = 0; i < Shape::kKeys / 2; ++i) {
            if (i / (kAtOnce / 2) == part) scores[i] = sums[i / 4 % (kAtOnce / 8)][i % 4];
        }
    }
    __syncwarp();  // all lanes have read
}

/// Issue out += P V, or out = P V unless `add`.
template <class Shape>
__device__ __forceinline__ void issue_output(
    float (&out)[Shape::kHeadDim / 2], const uint32_t (&probabilities)[Shape::kKeys / 16][4], uint32_t values,
    bool add = true) {
    const uint64_t b = wgmma_operand_transposed(values, Shape::kKeyPitch);
#pragma unroll
    for (int i = 0; i < Shape::kKeys / 16; ++i) {
        Wgmma16<Shape::kHeadDim, typename Shape::Element, true>::product(
            out, probabilities[i], b + i * 128, i > 0 || add);
    }
}

/// The same with P in shared memory.
template <class Shape>
__device__ __forceinline__ void issue_output(
    float (&out)[Shape::kHeadDim / 2], uint32_t probabilities, uint32_t values, bool add = true) {
    const uint64_t a = wgmma_operand(probabilities), b = wgmma_operand_transposed(values, Shape::kKeyPitch);
#pragma unroll
    for (int i = 0; i < Shape::kKeys / 16; ++i) {
        Wgmma16<Shape::kHeadDim, typename Shape::Element, true>::product(
            out, a + i / 4 * (Shape::kProbabilityPitch >> 4) + i % 4 * 2, b + i * 128, i > 0 || add);
    }
}

/// Store 16 columns of a warp's rows of P, packed as the A operand in registers is, where a product finds them.
template <class Shape>
__device__ __forceinline__ void store_probabilities(
    uint32_t probabilities, int columns, const uint32_t (&packed)[4], int thread) {
    const uint32_t box = probabilities + columns / 4 * Shape::kProbabilityPitch;
    stmatrix_x4(
        box + Swizzle<8>::offset(thread / 32 % 4 * 16 + thread % 16, columns % 4 * 2 + thread % 32 / 16), packed);
}

// A consumer warpgroup of the Hopper attention forward.
//
// Its steps follow each other without a seam, also from one tile of queries to the next: the next step's product with the
// keys is issued together with this step's product with the values, whosever queries they are, and a finished output is
// stored while other warpgroups multiply, or beside the next tile's first or second product with keys.

constexpr int kFlashPingPongBarrier = 1;  // and those after it, one per consumer warpgroup

/// Where a warpgroup stands in the rings.
template <class Shape>
struct FlashConsumer {
    using Tile = typename Shape::Tile;
    const FlashMemory<Shape>& memory;
    const typename Shape::Problem& p;
    int group, lane;
    RingPosition<Shape::kKeyStages> key_at;
    RingPosition<Shape::kValueStages> value_at;

    __device__ __forceinline__ void release(uint32_t barrier) const {
        if (lane == 0) mbarrier_arrive(barrier);
    }

    /// Wait for a tile and its queries.
    __device__ __forceinline__ Tile receive(unsigned number) const {
        mbarrier_wait(memory.query_full(memory.slot(group, number)), memory.parity(group, number));
        return memory.tile(group, number);
    }
    __device__ __forceinline__ uint32_t query(unsigned number) const {
        return memory.query(memory.slot(group, number));
    }
    __device__ __forceinline__ void release_query(unsigned number) const {
        __syncwarp();  // all lanes have read what they wanted
        release(memory.query_empty(memory.slot(group, number)));
    }
    /// Steps of a tile in which this warpgroup sees keys. Others see up to one more, in the beginning, or have rows where it
    /// has none.
    __device__ __forceinline__ int own_steps(const Tile& tile) const {
        return tile.steps == kFlashNoTile ? 0 : flash_steps<Shape>(p, tile, group * 64, 64);
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
        if constexpr (Shape::kPingPong) {
            wait_ping_pong();
            pass_ping_pong();
        }
    }
    __device__ __forceinline__ void wait_ping_pong() const { named_barrier_sync(kFlashPingPongBarrier + group, 256); }
    __device__ __forceinline__ void pass_ping_pong() const {
        named_barrier_arrive(kFlashPingPongBarrier + (group + 1 == Shape::kGroups ? 0 : group + 1), 256);
    }
};

/// All tiles of one consumer warpgroup.
template <class Shape>
__device__ __forceinline__ void consume_flash(
    const FlashMemory<Shape>& memory, const typename Shape::Problem& p, int group, int lane) {
    using Tile = typename Shape::Tile;
    FlashConsumer<Shape> at = {memory, p, group, lane, {}, {}};
    if (Shape::kPingPong && group == Shape::kGroups - 1) at.pass_ping_pong();  // the first turn is 0's
    int begun = 0;  // whether out has sums of the tile at work; else the first product overwrites it
    float scores[Shape::kKeys / 2], out[Shape::kHeadDim / 2];
    uint32_t probabilities[Shape::kKeys / 16][4];
    SoftmaxRow rows[2];
    LazyRescaleSoftmax<Shape::kSlack, Shape::kKeys / 2> lazy;
    const auto pack = [&](int from, int to) {
        const int thread = recomputed_thread();
#pragma unroll
        for (int i = from; i < to; ++i) {
            probabilities[i / 4][i % 4] = Shape::Element::pack(scores[2 * i], scores[2 * i + 1]);
            if (Shape::kSharedP && i % 4 == 3) {
                store_probabilities<Shape>(memory.probabilities(group), i / 4, probabilities[i / 4], thread);
            }
        }
    };
    const auto issue_values = [&] {
        const uint32_t values = memory.values(at.value_at.stage);
        const bool add = Shape::kClears || begun != 0;
        if constexpr (Shape::kSharedP) issue_output<Shape>(out, memory.probabilities(group), values, add);
        else issue_output<Shape>(out, probabilities, values, add);
        begun = 1;
    };
    const auto correct = [&](const float (&corrections)[2], bool older) {
        if (older) return;
#pragma unroll
        for (int i = 0; i < Shape::kHeadDim / 2; ++i) out[i] *= corrections[i % 4 / 2];
    };
    // From a step's scores to packed probabilities; then its keys are given back. between() waits until the product before has
    // read the last probabilities. `older`: out is that of the tile before.
    const auto softmax = [&](int first_query, unsigned number, int step, bool older, const auto& between) {
        const auto mask = [&] {
            const typename Shape::Extent extent(p, memory.tile(group, number));
            const int first_key = (extent.first_step + step) * Shape::kKeys;
            // No row of the warpgroup sees fewer keys than its first one.
            if (first_key + Shape::kKeys > extent.seen(p, first_query + group * 64)) {
                const int thread = recomputed_thread();
                int limits[2];
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int row = first_query + thread / 32 * 16 + thread % 32 / 4 + 8 * half;
                    limits[half] = extent.seen(p, row) - first_key;
                }
                mask_scores(scores, limits, thread % 32);
            }
        };
        constexpr int kAll = Shape::kKeys / 2, kHalf = kAll / 8 * 4;
        const bool query_gone = Shape::kEarlyQuery && step == 0;
        mask();
        lazy.begin(scores, rows);
        float corrections[2];
        bool raised = false;
        if (query_gone) {
            at.release_query(number);  // the next ones take a while to come; so these scores must not be lost
            raised = lazy.raise(scores, rows, corrections, p.scale);
        }
        lazy.template exponentiate<0, kHalf>(scores, rows, p.scale);
        between();
        if (raised) correct(corrections, older);
        pack(0, kHalf / 2);
        lazy.template exponentiate<kHalf, kAll>(scores, rows, p.scale);
        pack(kHalf / 2, kAll / 2);
        if (lazy.exceeds(rows)) {
            lazy.mend(scores, rows, corrections, p.scale, !query_gone, [&] {
                const int thread = recomputed_thread();
                multiply_again<Shape>(
                    scores, at.query(number), memory.keys(at.key_at.stage), thread / 32 % 4, thread % 32);
                mask();
            });
            pack(0, kAll / 2);
            correct(corrections, older);
        }
        if constexpr (Shape::kSharedP) {
            fence_async_shared();
            __syncwarp();  // a product reads the rows of its own warp
        }
        at.release_keys();
    };
    float factors[2];                                  // of a finished output
    const auto first_row_of = [&](const Tile& tile) {  // of this thread
        return tile.first_query + recomputed_thread() / 32 * 16 + recomputed_thread() % 32 / 4;
    };
    const auto finish = [&](unsigned number) {
        const Tile& tile = memory.tile(group, number);
        finish_rows(p, tile, first_row_of(tile), rows, factors, recomputed_thread() % 32);
        begun = 0;
    };
    const auto clear = [&] {
#pragma unroll
        for (int i = 0; i < Shape::kHeadDim / 2; ++i) out[i] = 0.0f;
    };
    const auto store = [&](unsigned number) {
        const Tile& tile = memory.tile(group, number);
        store_rows<Shape>(p, tile, first_row_of(tile), out, factors, recomputed_thread() % 32);
        if constexpr (Shape::kClears) clear();
    };
    clear();

    unsigned number = 0;  // of the tile
    while (true) {
        const Tile first = at.receive(number);
        if (first.steps == kFlashNoTile) break;
        int step = at.own_steps(first) - 1, first_query = first.first_query;
        rows[0] = rows[1] = SoftmaxRow();
        if (step < 0) {  // no rows here, or none that sees a key
            at.release_query(
                number);  // at once: others may wait for keys that are loaded after the next tile's queries
            for (int i = 0; i < first.steps; ++i) {
                at.skip_keys();
                at.skip_values();
            }
            finish(number);
            clear();
            store(number);
            ++number;
            continue;
        }

        // A first step, beside which nothing runs.
        int skipped = first.steps - 1 - step, skipped_next = 0;  // whose values are yet to be let pass
        for (int i = 0; i < skipped; ++i) at.skip_keys();
        mbarrier_wait(memory.keys_full(at.key_at.stage), at.key_at.parity);
        wgmma_fence();
        issue_scores<Shape>(scores, at.query(number), memory.keys(at.key_at.stage));
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_results(scores);
        lazy.fresh = 1;
        softmax(first_query, number, step, false, [] {});

        int finished = 0;  // whether out is, of the tile before
        const auto store_finished = [&] {
            if (finished == 0) return;
            store(number - 1);
            finished = 0;
        };
        const auto before_products = [&] {
            for (; skipped > 0; --skipped) at.skip_values();
            if constexpr (!Shape::kStoreLate) store_finished();
            if constexpr (Shape::kPingPong) at.wait_ping_pong();
        };
        const auto multiply_values = [&] {
            mbarrier_wait(memory.values_full(at.value_at.stage), at.value_at.parity);
            wgmma_fence();
            issue_values();
            wgmma_commit();
        };

        int next_query = 0;
        while (true) {
            const bool last = step == 0;
            if (Shape::kStoreSoon && last) {
                // The last values do not wait for the next tile, whose queries may come late: the output is stored meanwhile.
                if constexpr (!Shape::kEarlyQuery) at.release_query(number);
                before_products();
                multiply_values();
                finish(number);
                const Tile next = at.receive(number + 1);
                step = at.own_steps(next) - 1;
                if (step >= 0) {
                    skipped = next.steps - 1 - step;
                    for (int i = 0; i < skipped; ++i) at.skip_keys();
                }
                // Also those that only others need: else they would come while the product reads.
                if (next.steps > 0) mbarrier_wait(memory.keys_full(at.key_at.stage), at.key_at.parity);
                // Without a step scores are of anything, and nobody looks: behind a branch ptxas would serialise the products.
                wgmma_fence();
                issue_scores<Shape>(scores, at.query(number + 1), memory.keys(at.key_at.stage));
                wgmma_commit();
                wgmma_wait<1>();
                wgmma_results(out);
                at.release_values();
                store(number);
                rows[0] = rows[1] = SoftmaxRow();
                lazy.fresh = 1;
                first_query = next.first_query;
                ++number;
                at.receive(number);  // has come: keeps the compiler from waiting for scores before the output is stored
                wgmma_wait<0>();
                wgmma_results(scores);
                if (step < 0) break;
                softmax(first_query, number, step, false, [] {});
                continue;
            }
            if (last) {
                if constexpr (!Shape::kEarlyQuery) at.release_query(number);
                // Not while a turn is yet to be let pass: others need it to get as far as the next tile.
                if (!Shape::kSeamless || skipped > 0) break;
                const Tile next = at.receive(number + 1);
                step = at.own_steps(next);
                if (step == 0) break;  // a tile that is none of this warpgroup's
                next_query = next.first_query;
                skipped_next = next.steps - step;
                for (int i = 0; i < skipped_next; ++i) at.skip_keys();
            }
            --step;
            mbarrier_wait(memory.keys_full(at.key_at.stage), at.key_at.parity);
            before_products();
            wgmma_fence();
            issue_scores<Shape>(scores, at.query(number + last), memory.keys(at.key_at.stage));
            wgmma_commit();
            if constexpr (Shape::kStoreLate) store_finished();
            multiply_values();
            if constexpr (Shape::kPingPong) at.pass_ping_pong();
            if (!Shape::kClears && last) finish(number);
            wgmma_wait<1>();
            wgmma_results(scores);
            if (last) {
                if constexpr (Shape::kClears) finish(number);
                rows[0] = rows[1] = SoftmaxRow();
                lazy.fresh = 1;
                first_query = next_query;
                ++number;
                skipped = skipped_next;
                finished = 1;
            }
            softmax(first_query, number, step, last, [&] {
                // The values have come: waiting keeps the compiler from waiting for out before the first half's exponentials.
                mbarrier_wait(memory.values_full(at.value_at.stage), at.value_at.parity);
                wgmma_wait<0>();
                wgmma_results(out);
                at.release_values();
            });
        }
        if constexpr (Shape::kStoreSoon) continue;

        // A last step, beside which nothing runs.
        before_products();
        if constexpr (Shape::kStoreLate) store_finished();
        multiply_values();
        if constexpr (Shape::kPingPong) at.pass_ping_pong();
        wgmma_wait<0>();
        wgmma_results(out);
        at.release_values();
        finish(number);
        store(number);
        ++number;
    }
    if (Shape::kPingPong && group == 0) at.wait_ping_pong();  // takes the turn that nobody needs
}

}  // namespace attention
