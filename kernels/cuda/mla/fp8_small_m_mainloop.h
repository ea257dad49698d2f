// SPDX-License-Identifier: MIT
// MLA decode of 16 rows over e4m3 codes on wgmma: the main loop of a consumer warpgroup, and the sum over a cluster.
#pragma once

#include "ceil_div.h"
#include "common/swizzle.h"
#include "common/wide_rows.h"
#include "fp8.h"
#include "mla/call.h"
#include "mla/fp8_producer.h"
#include "mla/fp8_small_m_merge.h"
#include "mla/fp8_small_m_products.h"
#include "mla/fp8_small_m_shape.h"
#include "online_softmax.h"
#include "ptx/barrier.h"
#include "ptx/cluster.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/mbarrier.h"
#include "ptx/mma.h"
#include "ptx/thread.h"
#include "ptx/tma.h"

namespace mla {

// Parts of a request that the blocks of a cluster have computed, added up through their shared memory (16 rows).
//
// Where all requests are equal and cut into as many chunks as a cluster has blocks, a cluster's chunks are those of one request. Each
// block leaves its part in its own shared memory, and after a barrier of the cluster reads its share of the rows of all parts: nothing
// goes through global memory, and no second kernel merges.

/// By the 256 threads of a block of a cluster of kBlocks, after the barrier that follows the parts; another one must follow before any
/// block ends.
template <class Shape, int kBlocks>
__device__ __forceinline__ void reduce_cluster(
    const Fp8SmallMMemory<Shape>& memory, const typename Shape::Arguments& a, int request) {
    constexpr int kPitch = Shape::kPartPitch, kLatent = Fp8Row::kLatent;
    constexpr int kRows = ceil_div(Shape::kRows, kBlocks), kWarps = Shape::kConsumers / 32;  // rows of a block, at most
    constexpr int kSharers = kWarps / kRows * 32;                                            // threads of a row
    constexpr int kStep = 4 * kSharers, kEach = kLatent / kStep;  // 4 columns each, so far apart
    const int thread = recomputed_thread(), column = thread % kSharers * 4, rank = cluster_rank();
    const int row = rank * Shape::kRows / kBlocks + thread / kSharers;
    if (row >= (rank + 1) * Shape::kRows / kBlocks) return;
    const uint32_t own = memory.base + Shape::kSlot + row * (kPitch * 4);
    float4 x[kBlocks][kEach];
    float lse[kBlocks];
#pragma unroll
    for (int s = 0; s < kBlocks; ++s) {
        const uint32_t from = map_shared(own, s);
        lse[s] = load_cluster_float(from + kLatent * 4);  // nobody has written what is behind it
#pragma unroll
        for (int i = 0; i < kEach; ++i) x[s][i] = load_cluster(from + (column + i * kStep) * 4);
    }
    SoftmaxRow total;
#pragma unroll
    for (int s = 0; s < kBlocks; ++s) total.maximum = fmaxf(total.maximum, lse[s]);
    const float shift = total.shift(kLog2E);
    float weight[kBlocks];
#pragma unroll
    for (int s = 0; s < kBlocks; ++s) {
        weight[s] = Exp2()(lse[s] * kLog2E - shift);
        total.sum += weight[s];
    }
    const float inverse = total.inverse();
    uint8_t* const to = a.o + ((static_cast<size_t>(request) * Shape::kRows + row) * kLatent + column) * 2;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int s = 0; s < kBlocks; ++s) {
            const float4& part = x[s][i];
            sum = make_float4(
                sum.x + weight[s] * part.x, sum.y + weight[s] * part.y, sum.z + weight[s] * part.z,
                sum.w + weight[s] * part.w);
        }
        *reinterpret_cast<uint2*>(to + i * (kStep * 2)) =
            make_uint2(Bf16::pack(sum.x * inverse, sum.y * inverse), Bf16::pack(sum.z * inverse, sum.w * inverse));
    }
    if (column == 0) {
        a.lse[lse_index<false>(a, request, row)] = total.lse(kLog2E);
    }
}

// What a consumer warpgroup of the MLA decode over e4m3 codes does with 16 rows (mla_decode_fp8/wgmma_bulk.cu): softmax, pieces and
// their ends. Accumulators are those of mla/fp8_small_m_products.h.

constexpr int kFp8GroupBarrier = 1;  // + group: the threads of one warpgroup
constexpr int kFp8BothBarrier = 3;   // both

/// The part of a piece that the blocks of a cluster add up.
constexpr int kReducedPart = -1;

template <class Shape>
struct Fp8SmallMConsumer : Fp8SmallMProducts<Shape> {
    using Base = Fp8SmallMProducts<Shape>;
    using Row = Fp8Row;
    using Base::group, Base::kSlotsOfLane, Base::lane, Base::memory, Base::row_of, Base::warp;
    using typename Base::Output, typename Base::Scores;

    const typename Shape::Arguments& a;
    int row_tile;

    /// What a warpgroup knows of a piece beside its output; scores are powers of two here.
    struct State {
        SoftmaxRow rows[kSlotsOfLane];
        float reference = kLeastScale;    // a power of two, no less than any scale seen
        float shifts[kSlotsOfLane] = {};  // of the rows' exponents
    };

    __device__ __forceinline__ void group_barrier() const {
        __syncwarp();
        named_barrier_sync(kFp8GroupBarrier + group, 128);
    }
    static __device__ __forceinline__ void both_barrier() {
        __syncwarp();
        named_barrier_sync(kFp8BothBarrier, Shape::kConsumers);
    }

    /// Raise the references for exponents and scales to this page's; output and sums follow. All warps of the group.
    __device__ __forceinline__ void raise(const Scores& scores, float largest_scale, State& state, Output& out) const {
        float largest[kSlotsOfLane];
#pragma unroll
        for (int slot = 0; slot < kSlotsOfLane; ++slot) {
            const int i = slot / 2 * 4 + slot % 2;
            largest[slot] = fmaxf(scores[i], scores[i + 2]);
        }
#pragma unroll
        for (int step = 4; step < 32; step *= 2) {
#pragma unroll
            for (int slot = 0; slot < kSlotsOfLane; ++slot) {
                largest[slot] = fmaxf(largest[slot], __shfl_xor_sync(0xffffffffu, largest[slot], step));
            }
            largest_scale = fmaxf(largest_scale, __shfl_xor_sync(0xffffffffu, largest_scale, step));
        }
        if (lane < 4) {
#pragma unroll
            for (int slot = 0; slot < kSlotsOfLane; ++slot) memory.maxima(group, warp)[row_of(slot)] = largest[slot];
        }
        if (lane == 0) memory.largest(group)[warp] = largest_scale;
        group_barrier();
#pragma unroll
        for (int other = 0; other < 4; ++other) largest_scale = fmaxf(largest_scale, memory.largest(group)[other]);
        float change = 1.0f;
        if (largest_scale > state.reference) {
            const float before = state.reference;
            // The power of two above, and twice that: most pages' scales are about the same.
            state.reference = 2.0f * power_of_two_above(largest_scale);
            change = before / state.reference;
        }
        float factor[kSlotsOfLane];
#pragma unroll
        for (int slot = 0; slot < kSlotsOfLane; ++slot) {
            float most = -INFINITY;
#pragma unroll
            for (int other = 0; other < 4; ++other) most = fmaxf(most, memory.maxima(group, other)[row_of(slot)]);
            SoftmaxRow& row = state.rows[slot];
            if (most <= row.maximum + kReferenceSlack) most = row.maximum;
            factor[slot] = row.raise(most, 1.0f, Exp2()) * change;
            state.shifts[slot] = row.shift(1.0f);
        }
#pragma unroll
        for (int block = 0; block < Shape::kBlocks; ++block) {
#pragma unroll
            for (int i = 0; i < Shape::kSums; ++i) out[block][i] *= factor[slot_of(i)];
        }
    }

    /// Exponentials of a page's scores, and with the scales as weights in shared memory, a plane for each scale: fp16, at most 2^15.
    __device__ __forceinline__ void write_weights(
        const Scores& scores, const float4 (&scales)[2], const State& state, Scores& p) const {
#pragma unroll
        for (int i = 0; i < Shape::kSums; ++i) {
            p[i] = Exp2()(scores[i] - state.shifts[slot_of(i)]);
        }
        const float multiplier = power_over(7, state.reference);
#pragma unroll
        for (int g = 0; g < Row::kGroups; ++g) {
            float by[2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                by[h] = (g == 0 ? scales[h].x : g == 1 ? scales[h].y : g == 2 ? scales[h].z : scales[h].w) * multiplier;
            }
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) w[i] = Fp16::pack(p[2 * i] * by[i % 2], p[2 * i + 1] * by[i % 2]);
            stmatrix_x4_trans(
                memory.weights(group, g) + Swizzle<8>::offset(lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2), w);
        }
        fence_async_shared();
    }

    /// Scores to weights in shared memory and sums. The references are raised for the piece's first page, for others only where a
    /// score or scale asks for it: weights are made before that is known of the other warps, and once more where it is so.
    __device__ __forceinline__ void weigh(
        const Scores& scores, const float4 (&scales)[2], State& state, Output& out, bool first) const {
        float largest_scale = 0.0f;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float4& s = scales[h];
            largest_scale = fmaxf(largest_scale, fmaxf(fmaxf(s.x, s.y), fmaxf(s.z, s.w)));
        }
        Scores p;
        bool raises = first;
        if (!first) {
            bool above = largest_scale > state.reference;
#pragma unroll
            for (int i = 0; i < Shape::kSums; ++i) {
                above = above || scores[i] > state.rows[slot_of(i)].maximum + kReferenceSlack;
            }
            write_weights(scores, scales, state, p);
            __syncwarp();
            raises = named_barrier_any(kFp8GroupBarrier + group, 128, above);
        }
        if (raises) {
            raise(scores, largest_scale, state, out);
            write_weights(scores, scales, state, p);
            group_barrier();
        }
#pragma unroll
        for (int i = 0; i < Shape::kSums; ++i) state.rows[slot_of(i)].sum += p[i];
    }

    /// Clear what lies behind the first `count` tokens of a page.
    __device__ __forceinline__ void clear_tail(const uint32_t (&slots)[2], int count) const {
#pragma unroll
        for (int half = 0; half < 2; ++half)
            clear_rows(memory, slots[half], count - half * kSlotTokens, warp * 32 + lane);
        fence_async_shared();  // a later copy into these slots comes behind these writes
        group_barrier();
    }

    __device__ __forceinline__ void arrive(uint32_t barrier) const {
        __syncwarp();
        if (lane == 0) mbarrier_arrive(barrier);
    }

    /// Where the queries of a piece are.
    __device__ __forceinline__ const uint8_t* queries(const DecodePiece& piece) const {
        int tile = row_tile;
        compute_now(tile);  // 64 bits of it would be kept, and spill
        return a.q + (first_row_of(a, piece.request) + tile * Shape::kRows) * (Row::kWidth * 2);
    }

    /// The piece of `plan`; `tile` counts all pages so far.
    __device__ __forceinline__ void piece(
        Fp8SmallMPlan<Shape>& plan, const QueryTerms& terms, int part, uint32_t& tile) const {
        const DecodePiece& piece = plan.piece;
        const int first_row = row_tile * Shape::kRows, first_step = piece.steps.begin;
        const int length = plan.schedule().tokens(piece.request), pages = piece.steps.end - first_step;
        if (pages > 0) {
            terms.template store<Shape>(memory, both_barrier);  // where the sums of the piece before were exchanged
            both_barrier();
        }
        const int least_limit = length - (a.causal ? a.seqlen_q - 1 : 0);

        float units[kSlotsOfLane] = {};  // of scores: powers of two
        if (pages > 0) {
#pragma unroll
            for (int slot = 0; slot < kSlotsOfLane; ++slot) units[slot] = memory.factors()[row_of(slot)] * a.scale;
        }
        plan.keep(group * 4 + warp);
        Output out = {};
        State state;
#pragma unroll 1
        for (int own = static_cast<int>((tile + group) % 2); own < pages; own += 2) {
            const PageSlots<Shape> page(tile + own);
            const uint32_t slots[2] = {memory.slot(page.indices[0]), memory.slot(page.indices[1])};
            const int first_token = (first_step + own) * Shape::kTokens;
            mbarrier_wait(memory.full(tile + own), memory.full_parity(tile + own));
            if (first_token + Shape::kTokens > length) clear_tail(slots, length - first_token);
            const uint32_t tokens = (warp < 2 ? slots[0] : slots[1]) + warp % 2 * 16 * Row::kBytes;
            float4 scales[2];
            Scores scores;
            this->multiply_keys(
                scores, scales, tokens, units, [&] { mbarrier_wait(memory.read(group), (tile + own) / 2 % 2 ^ 1); });
            if (first_token + Shape::kTokens > least_limit) {
#pragma unroll
                for (int i = 0; i < Shape::kSums; ++i) {
                    const int token = first_token + warp * 16 + lane / 4 + i / 2 % 2 * 8;
                    // Tokens at the end which the row does not see.
                    const int hidden = a.causal ? a.seqlen_q - 1 - (first_row + row_of(slot_of(i))) / a.heads : 0;
                    if (token >= length - hidden) scores[i] = -INFINITY;
                }
            }
            weigh(scores, scales, state, out, own < 2);
            this->multiply_values(out, slots);
            arrive(memory.read(group));
            arrive(memory.empty(page.indices[0]));
            arrive(memory.empty(page.indices[1]));
        }
        tile += pages;
        // Its addresses are made anew: kept throughout the loop they would spill.
        const int thread = recomputed_thread();
        const Fp8SmallMConsumer anew = {{memory, group, thread / 32 % 4, thread % 32}, a, row_tile};
        plan.take_back(
            thread / 32);  // before finish() meets all threads: behind it a lane may put the next piece's away
        anew.finish(out, state, piece, part, first_row);
    }

    /// Where accumulators i and i + 2 (the same row, neighbouring columns) of a block lie in an exchange area.
    __device__ __forceinline__ float2& place(float* area, int block, int i) const {
        return *reinterpret_cast<float2*>(
            area + row_of(slot_of(i)) * Shape::kClusterReducePitch + block % 4 * 64 + warp * 16 + lane / 4 * 2);
    }

    /// Add up the warpgroups' sums and outputs, half of the columns each, and store.
    __device__ __forceinline__ void finish(
        const Output& out, State& state, const DecodePiece& piece, int part, int first_row) const {
        constexpr int kHalfBlocks = Shape::kBlocks / 2;
#pragma unroll
        for (int slot = 0; slot < kSlotsOfLane; ++slot) {
            SoftmaxRow& row = state.rows[slot];
#pragma unroll
            for (int step = 4; step < 32; step *= 2) row.sum += __shfl_xor_sync(0xffffffffu, row.sum, step);
            if (lane < 4) memory.totals(group, warp)[row_of(slot)] = row.sum;
            if (lane < 4 && warp == 0) memory.references(group)[row_of(slot)] = row.maximum;
        }
        const float unit = float_from_bits(bits_from_float(state.reference) - (7u << 23));  // of a weight
        if (lane == 0 && warp == 0) memory.units()[group] = unit;
        both_barrier();  // also: nobody reads queries or weights any more
#pragma unroll
        for (int block = 0; block < kHalfBlocks; ++block) {
#pragma unroll
            for (int i = 0; i < Shape::kSums; i += i % 4 == 1 ? 3 : 1) {
                const float (&theirs)[Shape::kSums] = out[kHalfBlocks + block];
                place(memory.exchange(group ^ 1), block, i) = make_float2(theirs[i], theirs[i + 2]);
            }
        }
        // Lane r has row r, and so has lane r + 16: one chain of dependent instructions instead of four.
        const int row = lane % 16;
        float sum = 0.0f, other_sum = 0.0f;
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            sum += memory.totals(group, w)[row];
            other_sum += memory.totals(group ^ 1, w)[row];
        }
        const float other = memory.references(group ^ 1)[row];
        SoftmaxRow all{memory.references(group)[row], 1.0f};
        float row_factor = all.raise(other, 1.0f, Exp2());
        float row_other = Exp2()(other - all.shift(1.0f));
        // In the order of the groups, so that both come to the same bits.
        const float x = row_factor * sum, y = row_other * other_sum;
        all.sum = group == 0 ? x + y : y + x;
        const float inverse = all.inverse();
        row_factor *= inverse * unit;
        row_other *= inverse * memory.units()[group ^ 1];
        float factor[kSlotsOfLane], other_factor[kSlotsOfLane];
#pragma unroll
        for (int slot = 0; slot < kSlotsOfLane; ++slot) {
            factor[slot] = __shfl_sync(0xffffffffu, row_factor, row_of(slot));
            other_factor[slot] = __shfl_sync(0xffffffffu, row_other, row_of(slot));
        }
        both_barrier();
        const bool gathered = part == kReducedPart;
        const size_t first = first_row_of(a, piece.whole() ? piece.request : part) + first_row;
        if (warp == 0 && lane < 16 && group == 0) {
            const size_t index = lse_index(a, piece.request, first_row + row);
            float& to = gathered        ? memory.part()[row * Shape::kPartPitch + Row::kLatent]
                        : piece.whole() ? a.lse[index]
                                        : a.parts.lse[first + row];
            to = all.lse(1.0f);
        }
        float2 sums[kSlotsOfLane][kHalfBlocks];
#pragma unroll
        for (int slot = 0; slot < kSlotsOfLane; ++slot) {
            const int i = slot / 2 * 4 + slot % 2;
#pragma unroll
            for (int block = 0; block < kHalfBlocks; ++block) {
                const float2 theirs = place(memory.exchange(group), block, i);
                sums[slot][block] = make_float2(
                    out[block][i] * factor[slot] + theirs.x * other_factor[slot],
                    out[block][i + 2] * factor[slot] + theirs.y * other_factor[slot]);
            }
        }
        const size_t column = group * Shape::kHalf + warp * 16 + lane / 4 * 2;
        if (gathered) {
#pragma unroll
            for (int slot = 0; slot < kSlotsOfLane; ++slot) {
                float* const to = memory.part() + row_of(slot) * Shape::kPartPitch + column;
#pragma unroll
                for (int block = 0; block < kHalfBlocks; ++block)
                    *reinterpret_cast<float2*>(to + block * 64) = sums[slot][block];
            }
            cluster_barrier();
            if (a.cluster == 2) {
                reduce_cluster<Shape, 2>(memory, a, piece.request);
            } else if (a.cluster == 3) {
                reduce_cluster<Shape, 3>(memory, a, piece.request);
            } else if (a.cluster == 4) {
                reduce_cluster<Shape, 4>(memory, a, piece.request);
            } else {
                reduce_cluster<Shape, 8>(memory, a, piece.request);
            }
            return;
        }
        // Eight lanes have neighbouring columns of a row: whole sectors of 32 bytes.
        const auto each = [&](auto store) {
#pragma unroll
            for (int slot = 0; slot < kSlotsOfLane; ++slot) {
                const size_t at = (first + row_of(slot)) * Row::kLatent + column;
#pragma unroll
                for (int block = 0; block < kHalfBlocks; ++block) store(at + block * 64, sums[slot][block]);
            }
        };
        if (piece.whole()) {
            each([&](size_t at, const float2& sum) {
                *reinterpret_cast<uint32_t*>(a.o + at * 2) = Bf16::pack(sum.x, sum.y);
            });
        } else {
            each([&](size_t at, const float2& sum) { *reinterpret_cast<float2*>(a.parts.o + at) = sum; });
        }
    }

    /// All pieces of this block; `terms` are asked for, of the first one. With a cluster its barrier is met once. With kLastMerges also
    /// the merge of the requests of which no part is missing then.
    template <bool kLastMerges>
    __device__ __forceinline__ void consume(Fp8SmallMPlan<Shape>& plan, QueryTerms& terms) const {
        uint32_t tile = 0;
        const int chunk = static_cast<int>(blockIdx.x) / a.row_tiles;
        const bool gathered = plan.alike() && plan.any, merging = kLastMerges && !gathered;
        DecodePiece& next = plan.piece;
        while (plan.any) {
            int part = gathered ? kReducedPart : next.part(a.schedule, chunk);
            if (merging) {
                const CutRequest shared = plan.share();
                part = part_of(a, shared, chunk - shared.first);
                const bool cut = !next.whole() && next.steps.begin < next.steps.end;
                if (cut && recomputed_thread() == 0) memory.cut(next.first) = shared;
            }
            if (next.steps.begin >= next.steps.end && !next.whole() && !gathered) {
                // The chunk's edge fell into the request's start: a second kernel must see that no token came.
                int at = row_tile * Shape::kRows + lane;
                compute_now(at);
                if (!merging && group == 0 && warp == 0 && lane < Shape::kRows)
                    a.parts.lse[first_row_of(a, part) + at] = -INFINITY;
            } else {
                piece(plan, terms, part, tile);
            }
            plan.next();
            if (plan.any) terms.load(queries(next));
        }
        if (merging) merge_if_last(memory, a, row_tile, both_barrier);
        if (a.cluster > 1 && !gathered) cluster_barrier();
    }
};

}  // namespace mla
