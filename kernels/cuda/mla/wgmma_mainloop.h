// SPDX-License-Identifier: MIT
// What the two consumer warpgroups of MLA decode do: scores of every other page, and half of the output's columns.
//
// Warpgroup 0 owns the even pages of a piece, 1 the odd ones. A page's owner computes its scores and probabilities P; the
// other gets these and the rows' references through shared memory. For pages t (even) and t + 1
//   0: scores of t; softmax, P to shared memory; when the other's scores have been started, P (still in registers) times its own
//      half of the values; accepts t + 1; behind that the scores of t + 2;
//   1: scores of t + 1; accepts t; softmax while that runs, P to shared memory; when it has ended P times its own half;
// where to accept is to copy the other's P to registers and to multiply it with one's own half of the values. So the tensor cores
// get scores of t, scores of t + 1 (softmax of t beside them), both halves of t's values (softmax of t + 1), both halves of t + 1's.
// Blocks that read their pages alone (Shape::kAlone) wait for places to be free more than for tensor cores: there 0 multiplies its own half
// at once, and 1 gives the other's values back before its exponentials.
// There is one buffer for P. What a warp reads there, the other's P of its own 16 rows, it has copied before it writes its own.
#pragma once

#include "common/quad.h"
#include "common/swizzle.h"
#include "common/wide_rows.h"
#include "mla/call.h"
#include "mla/wgmma_shape.h"
#include "mla/wgmma_softmax.h"
#include "online_softmax.h"
#include "ptx/barrier.h"
#include "ptx/cluster.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/mbarrier.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace mla {

// Named barriers; 7 is that of mla/wgmma_producer.h, 10 that of mla/gather.h.
constexpr int kReadyBarrier = 1;   // + owner: P and references of its page
constexpr int kOwnBarrier = 3;     // + group: the threads of one warpgroup
constexpr int kSumBarrier = 5;     // + group: its sums
constexpr int kStoredBarrier = 8;  // + 0 or 1: a part is stored
constexpr int kTurnBarrier = 11;   // warpgroup 1's scores have been started

/// Of calls that read no more pages L2 keeps the output. Beyond that keeping it costs the pages more than it saves
/// (benchmarks/mla_decode.md).
constexpr int kKeptPages = 10240;

template <class Shape, int group>
struct LatentConsumer {
    const LatentMemory<Shape>& memory;
    const LatentArguments& a;
    int lane;

    using Scores = float[Shape::kTokens / 2];
    using Output = float[Shape::kHalf / 2];
    using Probabilities = uint32_t[Shape::kTokens / 16][4];  // A operands of 16 tokens each

    // Computed anew where needed: registers are scarce.
    __device__ __forceinline__ int block_group() const { return static_cast<int>(blockIdx.x) / a.row_tiles; }
    __device__ __forceinline__ int row_tile() const { return static_cast<int>(blockIdx.x) % a.row_tiles; }

    __device__ __forceinline__ int warp() const { return recomputed_thread() / 32 % 4; }
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
    /// warpgroup's half of the values, the other half. All addresses come from few registers, plus constants. `behind` is called
    /// when the first panel's, a group of their own, have been started.
    template <class Behind>
    __device__ __forceinline__ void start_scores(Scores& scores, int parity, int buffer, const Behind& behind) const {
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
            if (panel % Shape::kBoxPanels == 0) mbarrier_wait(full + panel * 8, parity);
            wgmma_fence();  // again, since the compiler wants one behind every branch
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                const int at = panel * kStep + 2 * step;
                Wgmma16<Shape::kTokens, Bf16>::product(scores, queries + at, keys + at, i + step > 0);
            }
            if (group == 0 && i == 0) {
                wgmma_commit();
                behind();
            }
        }
        wgmma_commit();
    }

    /// This warpgroup's half of a page's values. Addresses in a cluster's second block have bits beyond a descriptor's.
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
#pragma unroll
        for (int i = 0; i < Shape::kHalf / 2; ++i) out[i] *= factor[i / 2 % 2];
    }

    /// Hide the tokens that a row does not see: those behind `length`, or behind its query.
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

    /// Where in shared memory this lane's rows of P's four matrices of 16 tokens begin.
    __device__ __forceinline__ uint32_t probabilities(int step) const {
        const int thread = recomputed_thread() % 128;
        const int chunk_row = thread / 32 * 16 + thread % 16, chunk = thread % 32 / 16;
        return memory.probabilities() + Swizzle<8>::offset(chunk_row, 2 * step + chunk);
    }

    /// Probabilities times this warpgroup's half of the values in `stage`.
    __device__ __forceinline__ void multiply(Output& out, const Probabilities& p, int stage) const {
        const uint64_t b = values(stage);
        wgmma_fence();  // again, since the compiler wants one behind every branch
#pragma unroll
        for (int step = 0; step < Shape::kTokens / 16; ++step) {
            Wgmma16<Shape::kHalf, Bf16, true>::product(out, p[step], b + 128 * step, true);
        }
        wgmma_commit();
    }

    __device__ __forceinline__ void clear_tail(int stage, int count) const {
        clear_tokens<Shape>(memory, stage, count, recomputed_thread() % 128);
        fence_async_shared();
        named_barrier_sync(kOwnBarrier + group, 128);
    }

    /// One piece of a request; `uses` counts this warpgroup's pages so far.
    __device__ __forceinline__ void piece(const DecodePiece& piece, const QueryTurn& queries, uint32_t& uses) const {
        const int buffer = queries.buffer;
        const int length = a.schedule.tokens(piece.request);
        const int pages = piece.steps.end - piece.steps.begin;
        constexpr int kSteps = Shape::kTokens / 16;  // of a product with values
        Output out = {};
        Scores scores;
        SoftmaxRow rows[2];
        Probabilities other;
        // The other's probabilities, and what was accumulated relative to the same references.
        const auto begin_accepting = [&] {
            named_barrier_sync(kReadyBarrier + (group ^ 1), 256);
            float maximum[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) maximum[half] = memory.references(group ^ 1)[row(half)];
            wgmma_wait<1>();  // already so; but the compiler does not see beyond the scores
            wgmma_results(out);
            if (!__any_sync(0xffffffffu, maximum[0] != rows[0].maximum || maximum[1] != rows[1].maximum)) return;
            float factor[2];
#pragma unroll
            for (int half = 0; half < 2; ++half) factor[half] = rows[half].raise(maximum[half], 1.0f, Exp2());
            rescale(out, factor);
        };
        // Times one's own half of its page.
        const auto accept = [&] {
#pragma unroll
            for (int step = 0; step < kSteps; ++step) ldmatrix_x4(other[step], probabilities(step));
            multiply(out, other, group ^ 1);
        };
        const auto finish_accepting = [&] {
            wgmma_wait<0>();
            wgmma_results(out);
            release(group ^ 1, group);
        };

        // The scores are complete. Warpgroup 1 has accepted.
        const auto compute = [&](int own) {
            release(group, Shape::kParts - 1);
            if (own + 2 >= pages) release_query(buffer);
            const int first_token = (piece.steps.begin + own) * Shape::kTokens;
            if (first_token + Shape::kTokens > length - (a.causal ? a.seqlen_q - 1 : 0))
                mask(scores, length, first_token);
            float factor[2] = {1.0f, 1.0f};
            to_exponents(scores, rows, a.scale);
            if (exceeds(scores, rows)) raise(scores, rows, factor);
            if constexpr (group == 1 && Shape::kAlone) {
                // The next even page waits for this place longest; behind the exponentials it would be free 500 cycles later.
                wgmma_wait<0>();
                wgmma_results(out);
                release(0, 1);
            }
            Probabilities p;
            exponentials(scores, rows, p);
#pragma unroll
            for (int step = 0; step < kSteps; ++step) stmatrix_x4(probabilities(step), p[step]);
            if (lane % 4 == 0) {
#pragma unroll
                for (int half = 0; half < 2; ++half) memory.references(group)[row(half)] = rows[half].maximum;
            }
            if (first_token + Shape::kTokens > length) clear_tail(group, length - first_token);
            named_barrier_arrive(kReadyBarrier + group, 256);
            if constexpr (group == 1 && !Shape::kAlone) {
                // Whether to rescale is a warp's own affair, but all warps of a group wait for its products or none does.
                wgmma_wait<0>();
                wgmma_results(out);
                release(0, 1);
            }
            if (__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f)) rescale(out, factor);
            if constexpr (group == 0 && !Shape::kAlone) {
                if (own + 1 < pages) named_barrier_sync(kTurnBarrier, 256);
            }
            multiply(out, p, group);
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
                }
                start_scores(scores, uses % 2, buffer, [&] {
                    if (own == 0) return;
                    wgmma_wait<1>();
                    release(1, 0);
                });
                wgmma_wait<0>();
                wgmma_results(out);
            } else {
                start_scores(scores, uses % 2, buffer, [] {});
                if constexpr (!Shape::kAlone) named_barrier_arrive(kTurnBarrier, 256);
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
    /// runs once (mla/gather.h).
    __device__ __forceinline__ void store_part(const Output& out, SoftmaxRow (&rows)[2], bool starts) const {
        mbarrier_wait(shared_address(&memory.open().written), 0);
        const int warp = this->warp(), lane = recomputed_thread() % 32;
        if (warp >= memory.open().strips) return;
        uint8_t* const strip = memory.open().part[starts ? 1 : 0].own + warp * LatentSplits::kStripBytes;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = quad_sum(rows[half].sum);
            if (lane % 4 == 0) {
                LatentSplits::notes(strip, group)[half * 8 + lane / 4] = make_float2(rows[half].maximum, sum);
            }
        }
        store_codes(out, strip + group * (LatentSplits::kNotes / 2), lane);
    }

    /// The chunk's edge fell into the request's start: the merge must see that no token came.
    __device__ __forceinline__ void store_nothing(bool starts) const {
        mbarrier_wait(shared_address(&memory.open().written), 0);
        const int warp = this->warp(), lane = recomputed_thread() % 32;
        if (warp >= memory.open().strips) return;
        uint8_t* const strip = memory.open().part[starts ? 1 : 0].own + warp * LatentSplits::kStripBytes;
        if (lane < 16) LatentSplits::notes(strip, group)[lane] = make_float2(-INFINITY, 0.0f);
        uint4* const codes = reinterpret_cast<uint4*>(strip + group * (LatentSplits::kNotes / 2)) + lane;
#pragma unroll 1
        for (int unit = 0; unit < LatentSplits::kUnits / 2; ++unit) codes[unit * 32] = make_uint4(0, 0, 0, 0);
    }

    /// Whether L2 is told to keep the output of a piece. What a call has written lies together in the order in which L2 drops lines, and
    /// would go to memory in one lump while the next call reads its first pages. So it goes when the next output is written. Measured
    /// for equal requests, one to a block; where a call reads more it costs more than that gains.
    __device__ __forceinline__ bool keeps(const DecodePiece& piece) const {
        const auto& expected = a.schedule.expected;
        const int pages = piece.steps.end - piece.steps.begin;
        return expected.chunk != 0 && pages == expected.most && a.schedule.batch * pages <= kKeptPages;
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
        [[maybe_unused]] uint64_t policy = 0;
        if constexpr (Shape::kKeepsOutput) policy = keeps(piece) ? policy_evict_last() : policy_evict_normal();
        const auto store = [&](uint8_t* to, const uint4& x) {
            if constexpr (Shape::kKeepsOutput) store_16(to, x, policy);
            else *reinterpret_cast<uint4*>(to) = x;
        };
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int at = row(half);
            if (warp() * 16 >= live_rows) continue;  // a whole warp: rows come in sixteens
            if (!empty) rows[half].sum = memory.sums(parity, 0)[at] + memory.sums(parity, 1)[at];
            const float inverse = rows[half].inverse();
            if (group == 0 && lane % 4 == 0) {
                const size_t index = lse_index(a, piece.request, first_row + at);
                a.lse[index] = rows[half].lse(1.0f);
            }
            uint8_t* const to = a.o + ((output_row + at) * Shape::kLatent + group * Shape::kHalf) * 2;
            store_row_rounded(out, half, inverse, to, store);
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
            if (recomputed_thread() > 0) return;
            SplitCount{memory.open().part[piece.first ? 1 : 0].count}.store();
        }
    }

    /// All pieces of this block.
    __device__ __forceinline__ void consume() const {
        uint32_t uses = 0;
        QueryTurn queries = {Shape::kPair == 2 ? 1 : a.query_buffers};
        typename Shape::Scheduler scheduler(a.schedule, block_group(), lane, CutFromLengths());
        DecodePiece next;
        while (scheduler.next(a.schedule, next)) {
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

}  // namespace mla
