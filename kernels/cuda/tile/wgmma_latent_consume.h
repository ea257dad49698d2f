// SPDX-License-Identifier: MIT
// What the two consumer warpgroups of MLA decode do: scores of every other tile, and half of the output's columns.
//
// Warpgroup 0 owns the even pages of a piece, 1 the odd ones. A page's owner computes its scores and probabilities; the
// other gets these and the maxima of the rows through shared memory. For pages t (even) and t + 1
//   0: accept(t - 1); scores of t; softmax, P for the other; P (still in registers) times its own half of the values;
//   1: scores of t + 1; behind them accept(t); softmax while that runs, P for the other; P times its own half;
// where accept is the other's probabilities times one's own half of the values. So the scores of both pages come one after
// the other, then each page's two halves of values, and one warpgroup's softmax falls into the other's products. There is one
// buffer for P: the owner of t + 1 is the only one who reads P of t there, and has done so before it writes its own.
#pragma once

#include "online_softmax.h"
#include "ptx/cluster.h"
#include "ptx/exp2.h"
#include "ptx/float_bits.h"
#include "ptx/ldmatrix.h"
#include "ptx/mbarrier.h"
#include "ptx/named_barrier.h"
#include "ptx/stmatrix.h"
#include "ptx/tma.h"
#include "ptx/wgmma_16bit.h"
#include "tile/attention_mma.h"
#include "tile/swizzle.h"
#include "tile/wide_rows.h"
#include "tile/wgmma_latent_shape.h"
#include "tile/wgmma_latent_store.h"

constexpr int kReadyBarrier = 1;  // + owner: maxima of its tile, and P of the first 32 tokens
constexpr int kOwnBarrier = 3;    // + group: the threads of one warpgroup
constexpr int kSumBarrier = 5;    // + group: its sums
constexpr int kRestBarrier = 10;  // + owner: P of the other tokens
constexpr int kTurnBarrier = 12;  // warpgroup 0 has started its scores

#ifndef PIECES0
#define PIECES0 2  // of warpgroup 0's products with values
#endif
#ifndef PIECES1
#define PIECES1 1  // of warpgroup 1's
#endif
#ifndef TURNS
#define TURNS 1  // warpgroup 1's scores wait for warpgroup 0's
#endif
#ifndef BEHIND
#define BEHIND 1  // warpgroup 0's scores stand behind the other's values
#endif

/// A row's reference, which SoftmaxRow calls its maximum, is a score times the scale; P = 2^(score * scale - reference). It lies 2^8
/// above the largest score it was made for and stays until one exceeds it: P from 2^-8 to 1 is as precise in bf16, accumulators
/// are rarely rescaled, and the signs of exponents say whether they must be.
constexpr float kSlack = 8.0f;

template <class Shape, int group>
struct LatentConsumer {
    const LatentMemory<Shape>& memory;
    const LatentArguments& a;
    int lane;

    using Scores = float[Shape::kTokens / 2];
    using Output = float[Shape::kHalf / 2];
    using Probabilities = uint32_t[Shape::kTokens / 16][4];
    using Rotary = uint32_t[4][4];  // the queries' rotary columns, as A operands of 16 columns each
    /// Of columns in a product with values: those free first are asked for while the rest is multiplied. But few products
    /// fit into the queue behind which a warp goes on.
    static constexpr int kPieces = group == 0 ? PIECES0 : PIECES1;

    // Computed anew where needed: registers are scarce.
    __device__ __forceinline__ int block_group() const { return static_cast<int>(blockIdx.x) / a.row_tiles; }
    __device__ __forceinline__ int row_tile() const { return static_cast<int>(blockIdx.x) % a.row_tiles; }

    __device__ __forceinline__ int row(int half) const {
        const int thread = recomputed_thread() % 128;
        return thread / 32 * 16 + half * 8 + thread % 32 / 4;
    }

    /// The same memory, hidden from the compiler, which would compute every operand's address once and spill it.
    __device__ __forceinline__ LatentMemory<Shape> hidden_memory() const {
        LatentMemory<Shape> hidden = memory;
        asm volatile("" : "+r"(hidden.base));
        return hidden;
    }

    /// Where this lane points ldmatrix or stmatrix for the first 16 columns of this warp's rows of a panel; those of step i, 16
    /// columns each, lie at this address ^ 32 i.
    static __device__ __forceinline__ uint32_t chunk(uint32_t panel) {
        const int thread = recomputed_thread() % 128;
        return panel + Swizzle<8>::offset(thread / 32 * 16 + thread % 16, thread % 32 / 16);
    }

    /// Start the scores of this warpgroup's page as its panels land, in the order in which they are loaded: the rotary panel, this
    /// warpgroup's half of the values, the other half. All addresses come from few registers, plus constants. `behind(i)` is
    /// called when i + 1 panels have been issued.
    template <class Behind>
    __device__ __forceinline__ void start_scores(
        Scores& scores, const Rotary& rotary, int parity, const Behind& behind) const {
        constexpr int first = group * Shape::kHalfPanels;
        constexpr int last = Shape::kRotary - first;  // relative to `first`, as all below
        constexpr int back = group * (2 * Shape::kHalfPanels);
        const LatentMemory<Shape> memory = hidden_memory();
        const uint64_t queries = wgmma_operand(memory.query(first));
        const uint64_t keys = wgmma_operand(memory.tokens(group, first));
        const uint32_t full = memory.full(group, first);
        constexpr int kStep = Shape::kPanelBytes / 16;
#pragma unroll
        for (int i = 0; i < Shape::kPanels; ++i) {
            const int panel = i == 0 ? last : i <= Shape::kHalfPanels ? i - 1 : i - 1 - back;
            mbarrier_wait(full + panel * 8, parity);
            wgmma_fence();  // again, since the compiler wants one behind every branch
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                const int at = panel * kStep + 2 * step;
                using Product = Wgmma16<Shape::kTokens, Bf16>;
                if (i == 0) Product::product(scores, rotary[step], keys + at, step > 0);
                else Product::product(scores, queries + at, keys + at, true);
            }
            wgmma_commit();
            behind(i);
        }
    }

    /// This warpgroup's half of a tile's values. Addresses in a cluster's second block have bits beyond a descriptor's.
    __device__ __forceinline__ uint64_t values(int stage) const {
        const uint32_t start = hidden_memory().tokens(stage, group * Shape::kHalfPanels) & 0x3ffff;
        return wgmma_operand_transposed(start, Shape::kPanelBytes);
    }

    /// This warp reads no more of this part of `stage`.
    __device__ __forceinline__ void release(int stage, int part) const {
        __syncwarp();
        const uint32_t empty = memory.empty(stage, part);
        if constexpr (Shape::kPair == 2) {
            if (lane < 2) mbarrier_arrive_cluster(map_shared(empty, lane));  // both blocks' loads write here
        } else {
            if (lane == 0) mbarrier_arrive(empty);
        }
    }

    /// Start the product of probabilities of half a tile's tokens with this warpgroup's half of the values of stage `kStage`, a
    /// group for each piece. `p(step)` is the A operand of 16 tokens. The first half finds no product with `out` in flight.
    template <int kStage, int kTokenHalf, class Operand>
    __device__ __forceinline__ void start_values(Output& out, const Operand& p) const {
        constexpr int kColumns = Shape::kHalf / kPieces, kSteps = Shape::kTokens / 32;
        const uint64_t b = values(kStage);
        if constexpr (kTokenHalf == 0) wgmma_results(out);
        wgmma_fence();
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
            float (&columns)[kColumns / 2] = *reinterpret_cast<float (*)[kColumns / 2]>(&out[piece * (kColumns / 2)]);
#pragma unroll
            for (int step = kTokenHalf * kSteps; step < (kTokenHalf + 1) * kSteps; ++step) {
                const uint64_t at = b + piece * (Shape::kHalfPanels / kPieces) * (Shape::kPanelBytes / 16) + 128 * step;
                Wgmma16<kColumns, Bf16, true>::product(columns, p(step), at, true);
            }
            wgmma_commit();
        }
    }

    /// Release this warpgroup's half of the values of stage `kStage` as the pieces of the product with them end: the first one,
    /// then the rest, behind which `kLater` groups have been started.
    template <int kStage>
    __device__ __forceinline__ void release_first_values() const {
        if constexpr (kPieces == 2) {
            wgmma_wait<1>();
            release(kStage, 2 * group);
        }
    }
    template <int kStage, int kLater>
    __device__ __forceinline__ void release_last_values() const {
        wgmma_wait<kLater>();
        if (kPieces == 1) release(kStage, 2 * group);
        release(kStage, 2 * group + 1);
    }
    template <int kStage>
    __device__ __forceinline__ void release_values() const {
        release_first_values<kStage>();
        release_last_values<kStage, 0>();
    }

    /// This warp is done with the queries and, as warpgroup 0, with the other's probabilities of the piece.
    __device__ __forceinline__ void release_query() const {
        __syncwarp();
        if (lane == 0) mbarrier_arrive(memory.query_empty());
    }

    static __device__ __forceinline__ void rescale(Output& out, const float (&factor)[2]) {
#pragma unroll
        for (int i = 0; i < Shape::kHalf / 2; ++i) out[i] *= factor[i / 2 % 2];
    }

    /// Scores become exponents: of 2, relative to the rows' references.
    __device__ __forceinline__ void to_exponents(Scores& scores, const SoftmaxRow (&rows)[2]) const {
        const float shift[2] = {rows[0].shift(1.0f), rows[1].shift(1.0f)};
#pragma unroll
        for (int i = 0; i < Shape::kTokens / 2; ++i) scores[i] = scores[i] * a.scale - shift[i / 2 % 2];
    }

    /// Whether a row of this warp needs a higher reference: an exponent is not negative, or there is no reference yet.
    static __device__ __forceinline__ bool exceeds(const Scores& exponents, const SoftmaxRow (&rows)[2]) {
        int signs = -1;
#pragma unroll
        for (int i = 0; i < Shape::kTokens / 2; ++i) signs &= float_bits(exponents[i]);
        return __any_sync(0xffffffffu, (signs >= 0) | (rows[0].maximum == -INFINITY) | (rows[1].maximum == -INFINITY));
    }

    /// Raise the references of rows that need it, so that exponents are at most - kSlack; returns the factors for what was
    /// accumulated before.
    static __device__ __forceinline__ void raise(Scores& exponents, SoftmaxRow (&rows)[2], float (&factor)[2]) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float largest = -INFINITY;
#pragma unroll
            for (int i = 0; i < Shape::kTokens / 4; ++i) largest = fmaxf(largest, exponents[i / 2 * 4 + 2 * half + i % 2]);
            largest = quad_maximum(largest);
            const bool first = rows[half].maximum == -INFINITY;
            // A row that sees no token has none.
            const float up = largest == -INFINITY || (largest < 0.0f && !first) ? 0.0f : largest + kSlack;
            factor[half] = first ? 1.0f : Exp2()(-up);
            if (largest != -INFINITY) rows[half].maximum = rows[half].shift(1.0f) + up;
            rows[half].sum *= factor[half];
#pragma unroll
            for (int i = 0; i < Shape::kTokens / 4; ++i) exponents[i / 2 * 4 + 2 * half + i % 2] -= up;
        }
    }

    /// Hide the tokens that a row must not see. `length` of the request, `first_token` of the tile.
    __device__ __forceinline__ void mask(Scores& scores, int length, int first_token) const {
        int limits[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int query = (row_tile() * Shape::kRows + row(half)) / a.heads;
            limits[half] = length - (a.causal ? a.seqlen_q - 1 - query : 0);
        }
#pragma unroll
        for (int i = 0; i < Shape::kTokens / 2; ++i) {
            if (first_token + i / 4 * 8 + lane % 4 * 2 + i % 2 >= limits[i / 2 % 2]) scores[i] = -INFINITY;
        }
    }

    /// The probabilities of half the tile's tokens, as A operands of 16 tokens each; `sums` is what they add to this lane's rows.
    template <int kTokenHalf>
    static __device__ __forceinline__ void exponentials(
        const Scores& exponents, Probabilities& p, float (&sums)[2]) {
        sums[0] = sums[1] = 0.0f;
        constexpr int kPairs = Shape::kTokens / 8;
#pragma unroll
        for (int i = kTokenHalf * kPairs; i < (kTokenHalf + 1) * kPairs; ++i) {
            const float first = Exp2()(exponents[2 * i]), second = Exp2()(exponents[2 * i + 1]);
            sums[i % 2] += first + second;
            p[i / 4][i % 4] = Bf16::pack(first, second);
        }
    }

    /// Tokens from `count` on hold NaN, which no probability of zero turns into zero: clear them, for all columns.
    __device__ __forceinline__ void clear_tail(int stage, int count) const {
        constexpr int kChunks = 8;  // of 16 bytes in a panel's row
        const int thread = recomputed_thread() % 128;
        for (int i = thread; i < (Shape::kTokens - count) * kChunks; i += 128) {
            uint8_t* const at = memory.start + (memory.tokens(stage, 0) - memory.base) + count * 128 + i * 16;
#pragma unroll
            for (int panel = 0; panel < 2 * Shape::kHalfPanels; ++panel) {
                *reinterpret_cast<uint4*>(at + panel * Shape::kPanelBytes) = make_uint4(0, 0, 0, 0);
            }
        }
        fence_async_shared();
        named_barrier_sync(kOwnBarrier + group, 128);
    }

    /// One piece of a request; `uses` counts this warpgroup's pages so far, `parity` is that of the pieces.
    __device__ __forceinline__ void piece(const DecodePiece& piece, int parity, uint32_t& uses) const {
        const int pages = piece.steps.end - piece.steps.begin;
        // Pages of the piece that every row sees wholly; the others' lengths are read again where they are needed.
        const int seen = max(0, a.schedule.tokens(piece.request) - (a.causal ? a.seqlen_q - 1 : 0)) / Shape::kTokens
            - piece.steps.begin;

        constexpr int kSteps = Shape::kTokens / 16;  // of a product with values
        Output out = {};
        Scores scores;
        SoftmaxRow rows[2];
        Rotary rotary;
        if (pages > 0) {
#pragma unroll
            for (int step = 0; step < 4; ++step) ldmatrix_x4(rotary[step], chunk(memory.query(Shape::kRotary)) ^ 32 * step);
        }
        // The other's probabilities times one's own half of its page.
        bool raised;
        const auto await_other = [&] {
            named_barrier_sync(kReadyBarrier + (group ^ 1), 256);
            const float first = memory.maxima(group ^ 1)[row(0)], second = memory.maxima(group ^ 1)[row(1)];
            raised = __any_sync(0xffffffffu, (first != rows[0].maximum) | (second != rows[1].maximum));
        };
        const auto follow_other = [&] {
            if (!raised) return;
            float factor[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                factor[half] = rows[half].raise(memory.maxima(group ^ 1)[row(half)], 1.0f, Exp2());
            }
            rescale(out, factor);
        };
        const auto accept = [&] {
            const uint64_t p = wgmma_operand(memory.probabilities(group ^ 1));
            const auto operand = [&](int step) { return p + 2 * step; };
            start_values<group ^ 1, 0>(out, operand);
            named_barrier_sync(kRestBarrier + (group ^ 1), 256);
            start_values<group ^ 1, 1>(out, operand);
        };

        // The scores are complete. Warpgroup 1 accepts meanwhile.
        const auto compute = [&](int own) {
            release(group, Shape::kQuarters);
            const int first_token = (piece.steps.begin + own) * Shape::kTokens;
            if (own >= seen) mask(scores, a.schedule.tokens(piece.request), first_token);
            // References rarely rise: the first half of the exponentials does not wait to know, but is computed again where it must.
            to_exponents(scores, rows);
            Probabilities p;
            float factor[2], sums[2];
            exponentials<0>(scores, p, sums);
            const bool raised_here = exceeds(scores, rows);
            if (raised_here) {
                raise(scores, rows, factor);
                exponentials<0>(scores, p, sums);
            }
            const auto publish = [&](int token_half) {
#pragma unroll
                for (int half = 0; half < 2; ++half) rows[half].sum += sums[half];
#pragma unroll
                for (int i = 0; i < kSteps / 2; ++i) {
                    const int step = token_half * (kSteps / 2) + i;
                    stmatrix_x4(chunk(memory.probabilities(group)) ^ 32 * step, p[step]);
                }
                fence_async_shared();
            };
            if (lane % 4 == 0) {
#pragma unroll
                for (int half = 0; half < 2; ++half) memory.maxima(group)[row(half)] = rows[half].maximum;
            }
            publish(0);
            if (own >= seen) {
                const int left = a.schedule.tokens(piece.request) - first_token;
                if (left < Shape::kTokens) clear_tail(group, left);
            }
            named_barrier_arrive(kReadyBarrier + group, 256);
            if constexpr (group == 1) {
                release_values<0>();  // accepted
                wgmma_results(out);
            }
            if (raised_here) rescale(out, factor);
            const auto operand = [&](int step) -> const uint32_t (&)[4] { return p[step]; };
            start_values<group, 0>(out, operand);
            exponentials<1>(scores, p, sums);
            publish(1);
            named_barrier_arrive(kRestBarrier + group, 256);
            start_values<group, 1>(out, operand);
            release_values<group>();
            wgmma_results(out);
        };

        if constexpr (group == 0) {
            for (int own = 0; own < pages; own += 2, ++uses) {
                if (own > 0) {
                    await_other();
                    follow_other();
                    accept();
                    if constexpr (BEHIND == 0) {
                        release_values<1>();
                        wgmma_results(out);
                    } else {
                        release_first_values<1>();
                    }
                    start_scores(scores, rotary, uses % 2, [&](int i) {
                        if (BEHIND != 0 && i == BEHIND - 1) release_last_values<1, BEHIND>();
                    });
                } else {
                    start_scores(scores, rotary, uses % 2, [](int) {});
                }
                if (TURNS != 0 && own + 1 < pages) named_barrier_arrive(kTurnBarrier, 256);
                wgmma_wait<0>();
                wgmma_results(scores);
                wgmma_results(out);
                compute(own);
            }
        } else {
            for (int own = 1; own < pages; own += 2, ++uses) {
                if constexpr (TURNS != 0) named_barrier_sync(kTurnBarrier, 256);
                start_scores(scores, rotary, uses % 2, [](int) {});
                await_other();
                wgmma_wait<0>();
                wgmma_results(scores);
                wgmma_results(out);
                follow_other();
                accept();
                compute(own);
            }
        }
        if (pages % 2 == group && pages > 0) {  // the last page is the other's
            await_other();
            follow_other();
            accept();
            release_values<group ^ 1>();
            wgmma_results(out);
        }
        if (pages > 0) release_query();
#pragma unroll
        for (int half = 0; half < 2; ++half) rows[half].maximum *= 1.0f / a.scale;
        finish(out, rows, piece, parity);
    }

    /// Add up both warpgroups' sums, and store this one's half of the output.
    __device__ __forceinline__ void finish(
        Output& out, SoftmaxRow (&rows)[2], const DecodePiece& piece, int parity) const {
        const int request_rows = a.seqlen_q * a.heads, first_row = row_tile() * Shape::kRows;
        const int live_rows = min(Shape::kRows, request_rows - first_row), part = piece.part(a.schedule, block_group());
        const size_t part_row = static_cast<size_t>(part) * request_rows + first_row;
        const size_t output_row = static_cast<size_t>(piece.request) * request_rows + first_row;
        const bool empty = piece.steps.begin >= piece.steps.end;  // then nothing was added up
        if (!empty) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                rows[half].sum = quad_sum(rows[half].sum);
                if (lane % 4 == 0) memory.sums(parity, group)[row(half)] = rows[half].sum;
            }
            // One barrier each way: no barrier is waited for at two instructions, which compute-sanitizer takes for divergence.
            named_barrier_arrive(kSumBarrier + group, 256);
            named_barrier_sync(kSumBarrier + (group ^ 1), 256);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int at = row(half);
            if (recomputed_thread() % 128 / 32 * 16 >= live_rows) continue;  // a whole warp: rows come in sixteens
            if (!empty) rows[half].sum = memory.sums(parity, 0)[at] + memory.sums(parity, 1)[at];
            const float inverse = rows[half].inverse();
            if (group == 0 && lane % 4 == 0) {
                const int query = (first_row + at) / a.heads, head = (first_row + at) % a.heads;
                const size_t index = (static_cast<size_t>(piece.request) * a.heads + head) * a.seqlen_q + query;
                (piece.whole() ? a.lse[index] : a.parts.lse[part_row + at]) = rows[half].lse(a.scale);
            }
            if (piece.whole()) {
                uint8_t* const to = a.o + ((output_row + at) * Shape::kLatent + group * Shape::kHalf) * 2;
                store_row_rounded(out, half, inverse, to);
            } else {
                float* const to = a.parts.o + (part_row + at) * Shape::kLatent + group * Shape::kHalf;
                store_row_exact(out, half, inverse, to);
            }
        }
    }

    /// All pieces of this block.
    __device__ __forceinline__ void consume() const {
        uint32_t uses = 0;
        int parity = 0;  // of pieces with pages
        DecodeWalk walk(a.schedule, block_group(), lane);
        DecodePiece next;
        while (walk.next(a.schedule, next)) {
            const bool empty = next.steps.begin >= next.steps.end;
            if (empty && !next.whole()) {
                // The chunk's edge fell into the request's start: the merge must see that no token came.
                const int request_rows = a.seqlen_q * a.heads, first_row = row_tile() * Shape::kRows;
                const int part = next.part(a.schedule, block_group());
                const int at = recomputed_thread() % 128;
                if (group == 0 && at < min(Shape::kRows, request_rows - first_row)) {
                    a.parts.lse[static_cast<size_t>(part) * request_rows + first_row + at] = -INFINITY;
                }
                continue;
            }
            if (!empty) mbarrier_wait(memory.query_full(), parity);
            piece(next, parity, uses);
            if (!empty) parity ^= 1;
        }
    }
};
