// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes on wgmma for 32 and 64 rows: the warpgroup of scores and softmax (mla/fp8_wide_shape.h).
#pragma once

#include "common/swizzle.h"
#include "fp8.h"
#include "mla/call.h"
#include "mla/fp8_wide_shape.h"
#include "online_softmax.h"
#include "ptx/convert.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace mla {

/// The warpgroup of scores and softmax.
template <class Shape>
struct Fp8WideScores : Fp8WideWorker<Shape, true> {
    using Base = Fp8WideWorker<Shape, true>;
    using Row = Fp8Row;
    using Base::a, Base::lane, Base::memory, Base::row_of, Base::row_tile, Base::warp;
    static constexpr int kSlotsOfLane = Base::kSlotsOfLane;

    static constexpr int kKeyBuffers = Shape::kRows == 32 ? 6 : 4;  // products under way or converted
    using Scores = float[Shape::kSums];

    static __device__ __forceinline__ void meet() {
        __syncwarp();
        named_barrier_sync(kWideScoreBarrier, 128);
    }

    /// Scores of a page; `tokens` is where the codes of this lane's token for ldmatrix start. Codes are multiplied by their scale
    /// over the power of two of the token's largest, in fp16, rotary columns are divided by that power.
    __device__ __forceinline__ void multiply_keys(Scores& scores, const float4 (&scales)[2], uint32_t tokens) const {
        constexpr int kPanel = Shape::kPanelBytes / 16;  // in a descriptor
        const uint64_t queries = wgmma_operand(memory.query(0));
        float units[2];
        uint32_t by[Row::kGroups][2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float4& s = scales[h];
            const uint32_t largest = bits_from_float(fmaxf(fmaxf(s.x, s.y), fmaxf(s.z, s.w))) >> 23;
            units[h] = float_from_bits(
                max(67u, min(253u, largest)) << 23);  // 2^-60 at least: what it divides must not overflow
            const float inverse = power_over(0, units[h]);
            by[0][h] = Fp16::pack(s.x * inverse, s.x * inverse);
            by[1][h] = Fp16::pack(s.y * inverse, s.y * inverse);
            by[2][h] = Fp16::pack(s.z * inverse, s.z * inverse);
            by[3][h] = Fp16::pack(s.w * inverse, s.w * inverse);
        }
        uint32_t rotary[4][4];
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            ldmatrix_x4(rotary[step], tokens + Row::kRopeStart + step * 32);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float inverse = power_over(0, units[i % 2]);
                rotary[step][i] = multiply_bfloats(rotary[step][i], Bf16::pack(inverse, inverse));
            }
        }
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            Wgmma16<Shape::kRows, Bf16>::product(
                scores, rotary[step], queries + (Shape::kPanels - 1) * kPanel + 2 * step, step > 0);
        }
        wgmma_commit();
        // Each product is a group of its own: it takes about 120 cycles to be complete, of which 32 are the tensor cores' time.
        uint32_t codes[kKeyBuffers][4];
        uint32_t loaded[2][4];  // two products' ahead of their conversion
        ldmatrix_x4(loaded[0], tokens);
#pragma unroll
        for (int step = 0; step < Row::kLatent / 16; ++step) {
            if (step % 2 == 0 && step + 2 < Row::kLatent / 16)
                ldmatrix_x4(loaded[(step / 2 + 1) % 2], tokens + (step + 2) * 16);
            const uint32_t (&bytes)[4] = loaded[step / 2 % 2];
            if (step >= kKeyBuffers) wgmma_wait<kKeyBuffers - 1>();
            uint32_t (&a_operand)[4] = codes[step % kKeyBuffers];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint32_t four = bytes[step % 2 * 2 + h], scale = by[step * 16 / Row::kGroup][h];
                a_operand[h] = multiply_halves(unpack_e4m3_low(four), scale);
                a_operand[2 + h] = multiply_halves(unpack_e4m3_high(four), scale);
            }
            wgmma_fence();
            Wgmma16<Shape::kRows, Fp16>::product(scores, a_operand, queries + step / 4 * kPanel + step % 4 * 2, true);
            wgmma_commit();
        }
        wgmma_wait<0>();
        wgmma_results(scores);
#pragma unroll
        for (int pair = 0; pair < kSlotsOfLane / 2; ++pair) {
            const float2 factors = *reinterpret_cast<const float2*>(memory.factors() + row_of(2 * pair));
#pragma unroll
            for (int i = 4 * pair; i < 4 * pair + 4; ++i) {
                scores[i] *= (i % 2 == 0 ? factors.x : factors.y) * units[i / 2 % 2];
            }
        }
    }

    /// Where the exponents of a row are, after a page whose largest score is `most` (scaled).
    static __device__ __forceinline__ float raised(float before, float most) {
        return most > before + (kReferenceSlack + kWideUnit) ? most - kWideUnit : before;
    }

    /// Raise the references for exponents and scales to this page's; sums follow, and `changes` says by how much the output must.
    __device__ __forceinline__ void raise(
        const Scores& scores, float largest_scale, float (&sums)[kSlotsOfLane], float& reference,
        float* changes) const {
        float largest[kSlotsOfLane];
#pragma unroll
        for (int slot = 0; slot < kSlotsOfLane; ++slot) {
            const int i = slot / 2 * 4 + slot % 2;
            largest[slot] = fmaxf(scores[i], scores[i + 2]) * a.scale;
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
            for (int slot = 0; slot < kSlotsOfLane; ++slot) memory.maxima(warp)[row_of(slot)] = largest[slot];
        }
        if (lane == 0) memory.largest()[warp] = largest_scale;
        meet();
        const auto next = [&](int row) {
            float most = memory.maxima(0)[row];
#pragma unroll
            for (int other = 1; other < 4; ++other) most = fmaxf(most, memory.maxima(other)[row]);
            return raised(memory.shifts()[row], most);
        };
#pragma unroll
        for (int slot = 0; slot < kSlotsOfLane; ++slot) {
            const int row = row_of(slot);
            sums[slot] *= Exp2()(memory.shifts()[row] - next(row));
        }
#pragma unroll
        for (int other = 0; other < 4; ++other) largest_scale = fmaxf(largest_scale, memory.largest()[other]);
        const float before = reference;
        if (largest_scale > reference) {
            // The power of two above, and twice that: most pages' scales are about the same.
            reference = 2.0f * power_of_two_above(largest_scale);
        }
        meet();
        const int row = warp * 32 + lane;
        if (row < Shape::kRows) {
            const float shift = next(row);
            changes[row] = Exp2()(memory.shifts()[row] - shift) * (before / reference);
            memory.shifts()[row] = shift;
        }
        meet();
    }

    /// Scores to probabilities, and scales over their reference, for the warpgroups of the values.
    __device__ __forceinline__ void weigh(
        Scores& scores, const float4 (&scales)[2], float (&sums)[kSlotsOfLane], float& reference, uint32_t tile) const {
        const int buffer = static_cast<int>(tile % 2);
        float largest_scale = 0.0f;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float4& s = scales[h];
            largest_scale = fmaxf(largest_scale, fmaxf(fmaxf(s.x, s.y), fmaxf(s.z, s.w)));
        }
        bool above = largest_scale > reference;
#pragma unroll
        for (int pair = 0; pair < kSlotsOfLane / 2; ++pair) {
            const float2 shifts = *reinterpret_cast<const float2*>(memory.shifts() + row_of(2 * pair));
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const float most = fmaxf(scores[4 * pair + e], scores[4 * pair + 2 + e]) * a.scale;
                above = above || most > (e == 0 ? shifts.x : shifts.y) + (kReferenceSlack + kWideUnit);
            }
        }
        const bool any = __any_sync(0xffffffffu, above);
        if (lane == 0) memory.flags(buffer)[warp] = any;
        mbarrier_wait(memory.done(buffer), tile / 2 % 2 ^ 1);
        meet();
        const uint4 flags = *reinterpret_cast<const uint4*>(memory.flags(buffer));
        const bool changed = (flags.x | flags.y | flags.z | flags.w) != 0;
        if (changed) raise(scores, largest_scale, sums, reference, memory.changes(buffer));
        if (warp == 0 && lane == 0) memory.changed()[buffer] = changed;
#pragma unroll
        for (int sixteen = 0; sixteen < Shape::kRows / 16; ++sixteen) {
            uint32_t w[4];
#pragma unroll
            for (int pair = 0; pair < 2; ++pair) {
                const int slot = 4 * sixteen + 2 * pair;
                const float2 shifts = *reinterpret_cast<const float2*>(memory.shifts() + row_of(slot));
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int i = 8 * sixteen + 4 * pair + 2 * h;
                    const float x = Exp2()(scores[i] * a.scale - shifts.x);
                    const float y = Exp2()(scores[i + 1] * a.scale - shifts.y);
                    sums[slot] += x;
                    sums[slot + 1] += y;
                    w[2 * pair + h] = Fp16::pack(x, y);
                }
            }
            stmatrix_x4_trans(
                memory.weights(buffer) + sixteen * 2048 +
                    Swizzle<8>::offset(lane / 16 * 8 + lane % 8, 2 * warp + lane / 8 % 2),
                w);
        }
        // Lane (g, t) takes scale t of tokens g and g + 8.
        const float multiplier = power_over(7, reference);
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float4& s = scales[h];
            const float scale = (t == 0 ? s.x : t == 1 ? s.y : t == 2 ? s.z : s.w) * multiplier;
            const int at = ((t * 4 + g / 2) * 8 + 2 * warp + h) * 4 + g % 2 * 2;
            *reinterpret_cast<uint16_t*>(memory.scales(buffer) + at) = static_cast<uint16_t>(Fp16::pack(scale, 0.0f));
        }
        fence_async_shared();
        this->arrive(memory.ready(buffer));
    }

    /// Clear what lies behind the first `count` tokens of a page.
    __device__ __forceinline__ void clear_tail(const PageSlots<Shape>& slots, int count) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            clear_rows(memory, memory.slot(slots.indices[half]), count - half * kSlotTokens, warp * 32 + lane);
        }
        fence_async_shared();  // a later copy into these slots comes behind these writes
        meet();
    }

    __device__ __forceinline__ void work() const {
        uint32_t tile = 0;
        this->each_piece([&](const DecodePiece& piece, int part) {
            const int length = a.schedule.tokens(piece.request), first_row = row_tile * Shape::kRows;
            const int least_limit = length - (a.causal ? a.seqlen_q - 1 : 0);
            float sums[kSlotsOfLane] = {};
            float reference = kLeastScale;
#pragma unroll 1
            for (int step = piece.steps.begin; step < piece.steps.end; ++step, ++tile) {
                const PageSlots<Shape> slots(tile);
                mbarrier_wait(memory.full(slots.indices[0]), slots.parities[0]);
                mbarrier_wait(memory.full(slots.indices[1]), slots.parities[1]);
                const int first_token = step * Shape::kTokens;
                if (first_token + Shape::kTokens > length) clear_tail(slots, length - first_token);
                const uint32_t slot = warp < 2 ? slots.indices[0] : slots.indices[1];
                const uint32_t tokens = memory.slot(slot) + warp % 2 * 16 * Row::kBytes;  // this warp's 16
                float4 scales[2];
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    scales[h] = *reinterpret_cast<const float4*>(
                        memory.at(tokens) + (lane / 4 + 8 * h) * Row::kBytes + Row::kScales);
                }
                Scores scores;
                multiply_keys(scores, scales, tokens + lane % 16 * Row::kBytes + lane / 16 * 16);
                this->arrive(memory.empty(slots.indices[0]));
                this->arrive(memory.empty(slots.indices[1]));
                if (first_token + Shape::kTokens > least_limit) {
                    const Fp8WideScores anew = {{memory, a, warp, recomputed_thread() % 32, row_tile}};
                    int hidden[kSlotsOfLane];  // tokens at the end which a slot's row does not see
#pragma unroll
                    for (int slot = 0; slot < kSlotsOfLane; ++slot) {
                        hidden[slot] = a.causal ? a.seqlen_q - 1 - (first_row + anew.row_of(slot)) / a.heads : 0;
                    }
#pragma unroll
                    for (int i = 0; i < Shape::kSums; ++i) {
                        const int token = first_token + warp * 16 + lane / 4 + i / 2 % 2 * 8;
                        if (token >= length - hidden[slot_of(i)]) scores[i] = -INFINITY;
                    }
                }
                weigh(scores, scales, sums, reference, tile);
            }
#pragma unroll
            for (int slot = 0; slot < kSlotsOfLane; ++slot) {
#pragma unroll
                for (int step = 4; step < 32; step *= 2) sums[slot] += __shfl_xor_sync(0xffffffffu, sums[slot], step);
                if (lane < 4) memory.maxima(warp)[row_of(slot)] = sums[slot];
            }
            meet();
            const int row = warp * 32 + lane;
            if (row < Shape::kRows) {
                float sum = 0.0f;
#pragma unroll
                for (int w = 0; w < 4; ++w) sum += memory.maxima(w)[row];
                SoftmaxRow all;
                all.sum = sum;
                memory.finals()[row] = all.inverse() * (reference * 0x1p-7f);
                all.maximum = memory.shifts()[row];  // scaled
                store_lse(a, piece, part, first_row + row, all.lse(1.0f));
            }
            wide_meet<Shape, true>();
        });
    }
};

}  // namespace mla
