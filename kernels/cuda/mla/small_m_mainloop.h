// SPDX-License-Identifier: MIT
// What a consumer warpgroup of the MLA decode of few rows does (mla/small_m.h).
//
// Accumulators are those of mla/wgmma_shape.h with 16 query rows: a thread has four of them.
#pragma once

#include "common/swizzle.h"
#include "mla/call.h"
#include "mla/small_m_shape.h"
#include "mla/wgmma_shape.h"
#include "online_softmax.h"
#include "ptx/barrier.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/mbarrier.h"
#include "ptx/thread.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace mla {

constexpr int kSmallMGroupBarrier = 1;  // + group: the threads of one warpgroup
constexpr int kSmallMBothBarrier = 3;   // both

template <class Shape>
struct SmallMConsumer {
    static constexpr int kChains = 2;  // sums of products a page's scores consist of

    const SmallMMemory<Shape>& memory;
    const SmallMArguments& a;
    int group, warp, lane;

    using Output = float[Shape::kValuePanels][8];

    __device__ __forceinline__ int row_of(int slot) const { return row_of_slot(slot, lane); }
    __device__ __forceinline__ void group_barrier() const { named_barrier_sync(kSmallMGroupBarrier + group, 128); }
    __device__ __forceinline__ int first_row() const { return Shape::kRowTiles == 2 ? group * 16 : 0; }

    /// The low word of an operand, all that addresses change, where the compiler sees that a warp agrees on it: each product's
    /// operands are then one addition in uniform registers instead of 64-bit sums in every lane.
    static __device__ __forceinline__ uint32_t uniform_operand(uint64_t operand) {
        return static_cast<uint32_t>(warp_uniform(static_cast<int>(operand)));
    }

    /// Scores of a page as its parts land.
    __device__ __forceinline__ void multiply_keys(float (&scores)[8], int stage, int parity, int buffer) const {
        float sums[kChains][8];
        const uint32_t keys = uniform_operand(wgmma_operand(memory.tokens(stage, 0)));
        const uint32_t queries = uniform_operand(wgmma_operand(memory.query(buffer, 0) + first_row() * 128));
#pragma unroll
        for (int panel = 0; panel < Shape::kPanels; ++panel) {
            if (panel % Shape::kPartPanels == 0) mbarrier_wait(memory.full(stage, panel / Shape::kPartPanels), parity);
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                const int product = 4 * panel + step;
                Wgmma16<16, Bf16>::product(
                    sums[product % kChains], wgmma_operand_of(keys + (panel * Shape::kPanelBytes / 16 + 2 * step)),
                    wgmma_operand_of(queries + (panel * Shape::kQueryPanel / 16 + 2 * step)), product >= kChains);
            }
        }
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int chain = 0; chain < kChains; ++chain) wgmma_results(sums[chain]);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            scores[i] = sums[0][i];
#pragma unroll
            for (int chain = 1; chain < kChains; ++chain) scores[i] += sums[chain][i];
        }
    }

    /// Scores to probabilities, in place; the output and the sums follow where a row's reference rises.
    __device__ __forceinline__ void softmax(float (&scores)[8], SoftmaxRow (&rows)[4], Output& out) const {
        float largest[4];
#pragma unroll
        for (int slot = 0; slot < 4; ++slot) {
            const int i = slot / 2 * 4 + slot % 2;
            largest[slot] = fmaxf(scores[i], scores[i + 2]);
        }
#pragma unroll
        for (int step = 4; step < 32; step *= 2) {
#pragma unroll
            for (int slot = 0; slot < 4; ++slot) {
                largest[slot] = fmaxf(largest[slot], __shfl_xor_sync(0xffffffffu, largest[slot], step));
            }
        }
        float* const mine = memory.maxima(group, warp);
        if (lane < 4) {
#pragma unroll
            for (int pair = 0; pair < 2; ++pair) {
                *reinterpret_cast<float2*>(mine + row_of(2 * pair)) =
                    make_float2(largest[2 * pair], largest[2 * pair + 1]);
            }
        }
        group_barrier();
        bool raised = false;
        float factor[4];
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
            float2 most = make_float2(-INFINITY, -INFINITY);
#pragma unroll
            for (int other = 0; other < 4; ++other) {
                const float2 x = *reinterpret_cast<const float2*>(memory.maxima(group, other) + row_of(2 * pair));
                most = make_float2(fmaxf(most.x, x.x), fmaxf(most.y, x.y));
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                SoftmaxRow& row = rows[2 * pair + i];
                float maximum = i == 0 ? most.x : most.y;
                if (maximum * a.scale <= row.maximum * a.scale + kReferenceSlack) maximum = row.maximum;
                factor[2 * pair + i] = row.raise(maximum, a.scale, Exp2());
                raised = raised || factor[2 * pair + i] != 1.0f;
            }
        }
        if (__any_sync(0xffffffffu, raised)) {
#pragma unroll
            for (int panel = 0; panel < Shape::kValuePanels; ++panel) {
#pragma unroll
                for (int i = 0; i < 8; ++i) out[panel][i] *= factor[slot_of(i)];
            }
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            SoftmaxRow& row = rows[slot_of(i)];
            scores[i] = Exp2()(scores[i] * a.scale - row.shift(a.scale));
            row.sum += scores[i];
        }
    }

    /// out += V^T P^T: 64 columns of the values at a time; each part of the page is free when its products have ended.
    __device__ __forceinline__ void multiply_values(Output& out, int stage) const {
        const uint32_t values = uniform_operand(wgmma_operand_transposed(memory.tokens(stage, 0), Shape::kPanelBytes));
        const uint32_t p = uniform_operand(wgmma_operand(memory.probabilities(group)));
        wgmma_fence();
#pragma unroll
        for (int part = 0; part < Shape::kParts; ++part) {
            const int first = part * Shape::kPartPanels, end = min(first + Shape::kPartPanels, Shape::kValuePanels);
#pragma unroll
            for (int step = 0; step < Shape::kTokens / 16; ++step) {
#pragma unroll
                for (int panel = first; panel < end; ++panel) {
                    Wgmma16OuterA<16, Bf16>::product(
                        out[panel], wgmma_operand_of(values + (panel * Shape::kPanelBytes / 16 + 128 * step)),
                        wgmma_operand_of(p + 2 * step), true);
                }
            }
            wgmma_commit();
        }
        static_assert(Shape::kParts == 3, "one wait for each");
        wgmma_wait<2>();
        arrive(memory.empty(stage, 0));
        wgmma_wait<1>();
        arrive(memory.empty(stage, 1));
        wgmma_wait<0>();
        arrive(memory.empty(stage, 2));
#pragma unroll
        for (int panel = 0; panel < Shape::kValuePanels; ++panel) wgmma_results(out[panel]);
    }

    __device__ __forceinline__ void arrive(uint32_t barrier) const {
        __syncwarp();
        if (lane == 0) mbarrier_arrive(barrier);
    }

    /// One piece of a request, whose queries lie in `buffer`; `tile` counts all pages so far.
    __device__ __forceinline__ void piece(
        const DecodePiece& piece, const DecodeScheduler& scheduler, int buffer, uint32_t& tile) const {
        const int length = a.schedule.tokens(piece.request);
        const int pages = piece.steps.end - piece.steps.begin;
        int hidden[4];  // tokens at the end which a slot's row does not see
#pragma unroll
        for (int slot = 0; slot < 4; ++slot) {
            hidden[slot] = a.causal ? a.seqlen_q - 1 - (first_row() + row_of(slot)) / a.heads : 0;
        }
        const int least_limit = length - (a.causal ? a.seqlen_q - 1 : 0);

        Output out = {};
        SoftmaxRow rows[4];
        constexpr int kStride = Shape::kRowTiles == 1 ? 2 : 1;
        const int first = Shape::kRowTiles == 1 ? static_cast<int>((tile + group) % 2) : 0;
        if (first >= pages && pages > 0) arrive(memory.query_empty(buffer));  // the only page is the other's
#pragma unroll 1
        for (int own = first; own < pages; own += kStride) {
            const uint32_t at = tile + own;
            const int stage = static_cast<int>(at % Shape::kStages), parity = static_cast<int>(at / Shape::kStages % 2);
            float scores[8];
            multiply_keys(scores, stage, parity, buffer);
            if (own + kStride >= pages) arrive(memory.query_empty(buffer));
            const int first_token = (piece.steps.begin + own) * Shape::kTokens;
            const bool clears = first_token + Shape::kTokens > length;
            if (first_token + Shape::kTokens > least_limit) {
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const int token = first_token + warp * 16 + lane / 4 + i / 2 % 2 * 8;
                    if (token >= length - hidden[slot_of(i)]) scores[i] = -INFINITY;
                }
                if (clears) {
                    if constexpr (Shape::kRowTiles == 1) {
                        clear_tokens<Shape>(memory, stage, length - first_token, warp * 32 + lane);
                    } else {  // the other warpgroup multiplies the same keys and values
                        named_barrier_sync(kSmallMBothBarrier, 256);
                        if (group == 0) clear_tokens<Shape>(memory, stage, length - first_token, warp * 32 + lane);
                    }
                }
            }
            softmax(scores, rows, out);
            uint32_t p[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) p[i] = Bf16::pack(scores[2 * i], scores[2 * i + 1]);
            stmatrix_x4_trans(
                memory.probabilities(group) + Swizzle<8>::offset(lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2), p);
            fence_async_shared();
            if (Shape::kRowTiles == 2 && clears) named_barrier_sync(kSmallMBothBarrier, 256);
            else group_barrier();
            multiply_values(out, stage);
        }
        tile += pages;
        finish(out, rows, piece, scheduler);
    }

    /// This warpgroup's `half` of the columns, in `area`, to the output or a part; 16 rows.
    __device__ __forceinline__ void store(const DecodePiece& piece, int part, int half) const {
        const float* const area = memory.exchange(Shape::kRowTiles == 1 ? half : group);
        const int request_rows = a.seqlen_q * a.heads;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = 4 * warp + i;
            if (piece.whole()) {
                const float4* const from =
                    reinterpret_cast<const float4*>(area + row * Shape::kClusterReducePitch + lane * 8);
                const float4 x = from[0], y = from[1];
                const size_t at = static_cast<size_t>(piece.request) * request_rows + first_row() + row;
                *reinterpret_cast<uint4*>(a.o + (at * Shape::kLatent + half * Shape::kHalf + lane * 8) * 2) =
                    make_uint4(Bf16::pack(x.x, x.y), Bf16::pack(x.z, x.w), Bf16::pack(y.x, y.y), Bf16::pack(y.z, y.w));
            } else {
                const size_t at = static_cast<size_t>(part) * request_rows + first_row() + row;
                float* const to = a.parts.o + at * Shape::kLatent + half * Shape::kHalf;
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const int column = j * 128 + lane * 4;
                    *reinterpret_cast<float4*>(to + column) =
                        *reinterpret_cast<const float4*>(area + row * Shape::kClusterReducePitch + column);
                }
            }
        }
    }

    /// Where accumulator i of panel `panel` lies in an exchange area.
    __device__ __forceinline__ int place(int panel, int i) const {
        return row_of(slot_of(i)) * Shape::kClusterReducePitch + panel % 4 * 64 + warp * 16 + lane / 4 + i / 2 % 2 * 8;
    }

    /// Add up the shares of the sums, for 16 rows those of both warpgroups and their outputs, too, and store.
    __device__ __forceinline__ void finish(
        Output& out, SoftmaxRow (&rows)[4], const DecodePiece& piece, const DecodeScheduler& scheduler) const {
        const bool paired = Shape::kRowTiles == 1 && a.paired && scheduler.known >= 0;
        const int part = piece.part(a.schedule, static_cast<int>(blockIdx.x));
#pragma unroll
        for (int slot = 0; slot < 4; ++slot) {
#pragma unroll
            for (int step = 4; step < 32; step *= 2) {
                rows[slot].sum += __shfl_xor_sync(0xffffffffu, rows[slot].sum, step);
            }
            if (lane < 4) memory.totals(group, warp)[row_of(slot)] = rows[slot].sum;
            if (lane < 4 && warp == 0) memory.references(group)[row_of(slot)] = rows[slot].maximum;
        }
        // The areas are free: everyone has stored the previous piece.
        if constexpr (Shape::kRowTiles == 1) named_barrier_sync(kSmallMBothBarrier, 256);
        else group_barrier();
        if constexpr (Shape::kRowTiles == 1) {
            float* const area = memory.exchange(group ^ 1);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    area[place(j, i)] = group == 0 ? out[4 + j][i] : out[j][i];
                }
            }
        }
        // Lane r has row r, and so has lane r + 16: one chain of dependent instructions instead of four.
        const int row = lane % 16;
        float sum = 0.0f, row_factor = 1.0f, row_other = 0.0f;
#pragma unroll
        for (int w = 0; w < 4; ++w) sum += memory.totals(group, w)[row];
        SoftmaxRow all{memory.references(group)[row], 1.0f};
        if constexpr (Shape::kRowTiles == 1) {
            float other_sum = 0.0f;
#pragma unroll
            for (int w = 0; w < 4; ++w) other_sum += memory.totals(group ^ 1, w)[row];
            const float other = memory.references(group ^ 1)[row];
            row_factor = all.raise(other, a.scale, Exp2());
            row_other = Exp2()(other * a.scale - all.shift(a.scale));
            // In the order of the groups, so that both come to the same bits.
            const float x = row_factor * sum, y = row_other * other_sum;
            sum = group == 0 ? x + y : y + x;
        }
        all.sum = sum;
        const float inverse = all.inverse();
        row_factor *= inverse;
        row_other *= inverse;
        float factor[4], other_factor[4];
#pragma unroll
        for (int slot = 0; slot < 4; ++slot) {
            factor[slot] = __shfl_sync(0xffffffffu, row_factor, row_of(slot));
            other_factor[slot] = __shfl_sync(0xffffffffu, row_other, row_of(slot));
        }
        if constexpr (Shape::kRowTiles == 1) {
            named_barrier_sync(kSmallMBothBarrier, 256);
            float* const area = memory.exchange(group);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const float own = group == 0 ? out[j][i] : out[4 + j][i];
                    float& at = area[place(j, i)];
                    at = own * factor[slot_of(i)] + at * other_factor[slot_of(i)];
                }
            }
            if (!paired) {
                group_barrier();
                store(piece, part, group);
            }
        } else {
            float* const area = memory.exchange(group);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                if (half == 1) group_barrier();  // the first half is stored
#pragma unroll
                for (int j = 0; j < 4; ++j) {
#pragma unroll
                    for (int i = 0; i < 8; ++i) area[place(j, i)] = out[4 * half + j][i] * factor[slot_of(i)];
                }
                group_barrier();
                store(piece, part, half);
            }
        }
        if (warp == 0 && lane < 16 && (Shape::kRowTiles == 2 || group == 0)) {
            const int at = first_row() + row;
            const float lse = all.lse(a.scale);
            if (paired) memory.lse()[at] = lse;
            else if (piece.whole()) a.lse[lse_index(a, piece.request, at)] = lse;
            else a.parts.lse[first_row_of(a, part) + at] = lse;
        }
    }

    /// All pieces of this block. Returns whether requests are as expected.
    __device__ __forceinline__ bool consume() const {
        uint32_t tile = 0;
        QueryTurn queries = {Shape::kQueryBuffers};
        const int block = static_cast<int>(blockIdx.x);
        DecodeScheduler scheduler(a.schedule, block, lane);
        DecodePiece next;
        while (scheduler.next(a.schedule, next)) {
            const int part = next.part(a.schedule, block);
            const bool empty = next.steps.begin >= next.steps.end;
            if (empty && !next.whole()) {
                // The chunk's edge fell into the request's start: the merge must see that no token came.
                const int at = warp * 32 + lane;
                if (group == 0 && at < Shape::kRows) a.parts.lse[first_row_of(a, part) + at] = -INFINITY;
                continue;
            }
            if (!empty) mbarrier_wait(memory.query_full(queries.buffer), queries.parity);
            piece(next, scheduler, queries.buffer, tile);
            if (!empty) queries.advance();
        }
        return scheduler.known >= 0;
    }
};

}  // namespace mla
