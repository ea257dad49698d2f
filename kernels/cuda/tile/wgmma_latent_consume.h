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

constexpr int kReadyBarrier = 1;  // + owner: P and maxima of its tile
constexpr int kOwnBarrier = 3;    // + group: the threads of one warpgroup
constexpr int kSumBarrier = 5;    // + group: its sums
constexpr int kStoredBarrier = 8; // + 0 or 1: a part is stored

/// A reference for exponents stays until a score exceeds it by a factor of 2^8: P up to 256 is as precise in bf16 as P
/// up to 1, and accumulators are rarely rescaled.
constexpr float kSlack = 8.0f;

template <class Shape, int group>
struct LatentConsumer {
    const LatentMemory<Shape>& memory;
    const LatentArguments& a;
    int warp, lane;

    using Scores = float[Shape::kTokens / 2];
    using Output = float[Shape::kHalf / 2];

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

    /// Start the scores of this warpgroup's page as its panels land, in the order in which they are loaded: panel 8, this
    /// warpgroup's half of the values, the other half. All addresses come from few registers, plus constants.
    __device__ __forceinline__ void start_scores(Scores& scores, int parity, int buffer) const {
        constexpr int first = group * Shape::kHalfPanels;
        constexpr int last = Shape::kPanels - 1 - first;  // relative to `first`, as all below
        constexpr int back = group * (2 * Shape::kHalfPanels);
        const LatentMemory<Shape> memory = hidden_memory();
        const uint64_t queries = wgmma_operand(memory.query(first) + buffer * Shape::kSecondQuery);
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
                Wgmma16<Shape::kTokens, Bf16>::product(scores, queries + at, keys + at, i + step > 0);
            }
        }
        wgmma_commit();
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

    /// This warp's scores of the piece are complete.
    __device__ __forceinline__ void release_query(int buffer) const {
        __syncwarp();
        if (lane == 0) mbarrier_arrive(memory.query_empty(buffer));
    }

    static __device__ __forceinline__ void rescale(Output& out, const float (&factor)[2]) {
        if (!__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f)) return;
#pragma unroll
        for (int i = 0; i < Shape::kHalf / 2; ++i) out[i] *= factor[i / 2 % 2];
    }

    /// Take the maxima of a tile's scores; returns the factors for what was accumulated before.
    __device__ __forceinline__ void raise_maxima(Scores& scores, SoftmaxRow (&rows)[2], float (&factor)[2]) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float largest[2] = {-INFINITY, -INFINITY};
#pragma unroll
            for (int i = 0; i < Shape::kTokens / 4; ++i) {
                largest[i % 2] = fmaxf(largest[i % 2], scores[i / 2 * 4 + 2 * half + i % 2]);
            }
            float most = quad_maximum(fmaxf(largest[0], largest[1]));
            if (most * a.scale <= rows[half].maximum * a.scale + kSlack) most = rows[half].maximum;
            factor[half] = rows[half].raise(most, a.scale, Exp2());
        }
    }

    /// Hide the tokens from the rows' limits on.
    __device__ __forceinline__ void mask(Scores& scores, const int (&limits)[2], int first_token) const {
#pragma unroll
        for (int i = 0; i < Shape::kTokens / 2; ++i) {
            if (first_token + i / 4 * 8 + lane % 4 * 2 + i % 2 >= limits[i / 2 % 2]) scores[i] = -INFINITY;
        }
    }

    /// Probabilities in place of the scores of row `half`.
    __device__ __forceinline__ void exponentials(Scores& scores, SoftmaxRow (&rows)[2], int half) const {
        const float shift = rows[half].shift(a.scale);
        float sum[2] = {};
#pragma unroll
        for (int i = 0; i < Shape::kTokens / 4; ++i) {
            float& score = scores[i / 2 * 4 + 2 * half + i % 2];
            score = Exp2()(score * a.scale - shift);
            sum[i % 2] += score;
        }
        rows[half].sum += sum[0] + sum[1];
    }

    /// Tokens from `count` on hold NaN, which no probability of zero turns into zero: clear them, for all columns.
    __device__ __forceinline__ void clear_tail(int stage, int count) const {
        constexpr int kChunks = 8;  // of 16 bytes in a panel's row
        const int thread = warp * 32 + lane;
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

    /// One piece of a request; `uses` counts this warpgroup's pages so far.
    __device__ __forceinline__ void piece(
        const DecodePiece& piece, const QueryTurn& queries, uint32_t& uses) const {
        const int buffer = queries.buffer;
        const int first_row = row_tile() * Shape::kRows;
        const int length = a.schedule.tokens(piece.request);
        const int pages = piece.steps.end - piece.steps.begin;
        int limits[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int query = (first_row + row(half)) / a.heads;
            limits[half] = length - (a.causal ? a.seqlen_q - 1 - query : 0);
        }
        const int least_limit = length - (a.causal ? a.seqlen_q - 1 : 0);

        constexpr int kSteps = Shape::kTokens / 16;  // of a product with values
        Output out = {};
        Scores scores;
        SoftmaxRow rows[2];
        // The other's probabilities times one's own half of its page.
        const auto begin_accepting = [&] {
            named_barrier_sync(kReadyBarrier + (group ^ 1), 256);
            float factor[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float maximum = memory.maxima(group ^ 1)[row(half)];
                factor[half] = rows[half].raise(maximum, a.scale, Exp2());
            }
            wgmma_wait<1>();  // already so; but the compiler does not see beyond the scores
            wgmma_results(out);
            rescale(out, factor);
        };
        const auto accept = [&] {
            const uint64_t p = wgmma_operand(memory.probabilities()), b = values(group ^ 1);
            wgmma_fence();  // again, since the compiler wants one behind every branch
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                Wgmma16<Shape::kHalf, Bf16, true>::product(out, p + 2 * step, b + 128 * step, true);
            }
            wgmma_commit();
        };
        const auto finish_accepting = [&] {
            wgmma_wait<0>();
            wgmma_results(out);
            release(group ^ 1, group);
        };

        // The scores are complete. Warpgroup 1 accepts meanwhile.
        const auto compute = [&](int own) {
            constexpr bool kAccepts = group == 1;
            release(group, Shape::kParts - 1);
            if (own + 2 >= pages) release_query(buffer);
            const int first_token = (piece.steps.begin + own) * Shape::kTokens;
            float factor[2] = {1.0f, 1.0f};
            if (first_token + Shape::kTokens > least_limit) mask(scores, limits, first_token);
            raise_maxima(scores, rows, factor);
            exponentials(scores, rows, 0);
            exponentials(scores, rows, 1);
            uint32_t p[kSteps][4];
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    p[step][i] = Bf16::pack(scores[8 * step + 2 * i], scores[8 * step + 2 * i + 1]);
                }
            }
            if (kAccepts) finish_accepting();
            const int thread = recomputed_thread() % 128;
            const int chunk_row = thread / 32 * 16 + thread % 16, chunk = thread % 32 / 16;
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                stmatrix_x4(memory.probabilities() + Swizzle<8>::offset(chunk_row, 2 * step + chunk), p[step]);
            }
            if (lane % 4 == 0) {
#pragma unroll
                for (int half = 0; half < 2; ++half) memory.maxima(group)[row(half)] = rows[half].maximum;
            }
            fence_async_shared();
            if (first_token + Shape::kTokens > length) clear_tail(group, length - first_token);
            named_barrier_arrive(kReadyBarrier + group, 256);
            rescale(out, factor);
            const uint64_t b = values(group);
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                Wgmma16<Shape::kHalf, Bf16, true>::product(out, p[step], b + 128 * step, true);
            }
            wgmma_commit();
            wgmma_wait<0>();
            wgmma_results(out);
            release(group, group);
        };

        if (group >= pages && pages > 0) release_query(buffer);  // the only page is the other's
        for (int own = group; own < pages; own += 2, ++uses) {
            if constexpr (group == 0) {
                if (own > 0) {
                    begin_accepting();
                    accept();
                    finish_accepting();
                }
                start_scores(scores, uses % 2, buffer);
                wgmma_wait<0>();
            } else {
                start_scores(scores, uses % 2, buffer);
                begin_accepting();
                wgmma_wait<0>();
                accept();
            }
            wgmma_results(scores);
            compute(own);
        }
        if (pages % 2 == group && pages > 0) {  // the last page is the other's
            begin_accepting();
            accept();
            finish_accepting();
        }
        if (piece.whole()) finish(out, rows, piece, queries.alternate());
        else store_part(out, rows, piece.first);
    }

    /// This one's half of the columns, and of the sums of weights, to a part: what is not needed is not computed, since this code
    /// runs once (tile/latent_gather.h).
    __device__ __forceinline__ void store_part(const Output& out, SoftmaxRow (&rows)[2], bool starts) const {
        mbarrier_wait(shared_address(&memory.open().written), 0);
        if (warp >= memory.open().strips) return;
        uint8_t* const strip = memory.open().part[starts ? 1 : 0].own + warp * LatentParts::kStripBytes;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = quad_sum(rows[half].sum);
            if (lane % 4 == 0) {
                LatentParts::notes(strip, group)[half * 8 + lane / 4] = make_float2(rows[half].maximum * a.scale, sum);
            }
        }
        store_codes(out, strip + group * (LatentParts::kNotes / 2), lane);
    }

    /// The chunk's edge fell into the request's start: the merge must see that no token came.
    __device__ __forceinline__ void store_nothing(bool starts) const {
        mbarrier_wait(shared_address(&memory.open().written), 0);
        if (warp >= memory.open().strips) return;
        uint8_t* const strip = memory.open().part[starts ? 1 : 0].own + warp * LatentParts::kStripBytes;
        const int lane = recomputed_thread() % 32;
        if (lane < 16) LatentParts::notes(strip, group)[lane] = make_float2(-INFINITY, 0.0f);
        uint4* const codes = reinterpret_cast<uint4*>(strip + group * (LatentParts::kNotes / 2)) + lane;
#pragma unroll 1
        for (int unit = 0; unit < LatentParts::kUnits / 2; ++unit) codes[unit * 32] = make_uint4(0, 0, 0, 0);
    }

    /// Add up both warpgroups' sums, and store this one's half of the output.
    __device__ __forceinline__ void finish(
        Output& out, SoftmaxRow (&rows)[2], const DecodePiece& piece, int parity) const {
        const int request_rows = a.seqlen_q * a.heads, first_row = row_tile() * Shape::kRows;
        const int live_rows = min(Shape::kRows, request_rows - first_row);
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
            if (warp * 16 >= live_rows) continue;  // a whole warp: rows come in sixteens
            if (!empty) rows[half].sum = memory.sums(parity, 0)[at] + memory.sums(parity, 1)[at];
            const float inverse = rows[half].inverse();
            if (group == 0 && lane % 4 == 0) {
                const int query = (first_row + at) / a.heads, head = (first_row + at) % a.heads;
                const size_t index = (static_cast<size_t>(piece.request) * a.heads + head) * a.seqlen_q + query;
                a.lse[index] = rows[half].lse(a.scale);
            }
            uint8_t* const to = a.o + ((output_row + at) * Shape::kLatent + group * Shape::kHalf) * 2;
            store_row_rounded(out, half, inverse, to);
        }
    }

    /// Count a part that all threads have stored.
    __device__ __forceinline__ void count(const DecodePiece& piece) const {
        // A block has one of each at most.
        if constexpr (group == 1) {
            if (piece.first) named_barrier_arrive(kStoredBarrier + 1, 256);
            else named_barrier_arrive(kStoredBarrier, 256);
        } else {
            if (piece.first) named_barrier_sync(kStoredBarrier + 1, 256);
            else named_barrier_sync(kStoredBarrier, 256);
            if (warp > 0 || lane > 0) return;
            PartCount{memory.open().part[piece.first ? 1 : 0].count}.store();
        }
    }

    /// All pieces of this block.
    __device__ __forceinline__ void consume() const {
        uint32_t uses = 0;
        QueryTurn queries = {Shape::kPair == 2 ? 1 : a.query_buffers};
        DecodeWalk walk(a.schedule, block_group(), lane);
        DecodePiece next;
        while (walk.next(a.schedule, next)) {
            const bool empty = next.steps.begin >= next.steps.end;
            if (empty && !next.whole()) {
                store_nothing(next.first);
            } else {
                if (!empty) mbarrier_wait(memory.query_full(queries.buffer), queries.parity);
                piece(next, queries, uses);
                if (!empty) queries.advance();
            }
            if (!next.whole()) count(next);
        }
    }
};
