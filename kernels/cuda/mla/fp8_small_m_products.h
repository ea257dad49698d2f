// SPDX-License-Identifier: MIT
// MLA decode of 16 rows over e4m3 codes on wgmma: queries as sums of two e4m3 numbers, and the products.
#pragma once

#include <cstdint>

#include "common/swizzle.h"
#include "common/wide_rows.h"
#include "fp8.h"
#include "mla/fp8_shape.h"
#include "mla/fp8_small_m_shape.h"
#include "mla/wgmma_shape.h"
#include "ptx/convert.h"
#include "ptx/ldst.h"
#include "ptx/math.h"
#include "ptx/tma.h"
#include "ptx/wgmma.h"

namespace mla {

// Queries of the MLA decode over e4m3 codes as sums of two e4m3 numbers, so that keys are multiplied as they are.
//
// A bf16 number has eight significant bits, an e4m3 number four. The larger term is the query rounded to e4m3: what is left is at
// most half a unit of its last place, so four bits suffice for it, too. With a row's largest query at 2^7 .. 2^8 and codes down to
// 2^-9 the two are exact where a query is 2^-9 or more of the largest, and off by less than 2^-17 of the largest elsewhere.

/// Four numbers as e4m3, and what is left of them as e4m3.
__device__ __forceinline__ void split_e4m3(const float (&x)[4], uint32_t& larger, uint32_t& smaller) {
    larger = pack_e4m3(x[0], x[1], x[2], x[3]);
    const float2 low = unpack_pair<Fp16>(unpack_e4m3_low(larger)), high = unpack_pair<Fp16>(unpack_e4m3_high(larger));
    smaller = pack_e4m3(x[0] - low.x, x[1] - low.y, x[2] - high.x, x[3] - high.y);
}

/// One thread's share of the 16 query rows of a piece, sixteen threads to a row: 32 latent columns, and 4 rotary ones. The block's
/// first 256 threads.
struct QueryTerms {
    uint32_t words[16];
    uint2 rotary;

    /// Ask for them; `q` is the first row.
    __device__ __forceinline__ void load(const uint8_t* q) {
        const int thread = recomputed_thread(), row = thread / 16, part = thread % 16;
        const uint8_t* const from = q + row * (Fp8Row::kWidth * 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint4 four = *reinterpret_cast<const uint4*>(from + part * 64 + i * 16);
            words[4 * i] = four.x;
            words[4 * i + 1] = four.y;
            words[4 * i + 2] = four.z;
            words[4 * i + 3] = four.w;
        }
        rotary = *reinterpret_cast<const uint2*>(from + Fp8Row::kLatent * 2 + part * 8);
    }

    /// Divided by powers of two to shared memory; the threads `meet` before they write, and afterwards.
    template <class Shape, class Memory, class Meet>
    __device__ __forceinline__ void store(const Memory& memory, Meet meet) const;
};

template <class Shape, class Memory, class Meet>
__device__ __forceinline__ void QueryTerms::store(const Memory& memory, Meet meet) const {
    static_assert(Shape::kRows == 16 && Shape::kConsumers == 256, "sixteen threads to a row");
    const int thread = recomputed_thread(), row = thread / 16, part = thread % 16;
    float largest = 0.0f;
    const auto see = [&](uint32_t word) {
        const float2 pair = unpack_pair<Bf16>(word);
        largest = fmaxf(largest, fmaxf(fabsf(pair.x), fabsf(pair.y)));
    };
#pragma unroll
    for (int i = 0; i < 16; ++i) see(words[i]);
    see(rotary.x);
    see(rotary.y);
#pragma unroll
    for (int step = 1; step < 16; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    const float by = float_from_bits(query_exponent(largest, 7));
    uint8_t* const panel = memory.at(memory.query(part / 4 * 2));
    meet();
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // 16 columns: a chunk of either term
        uint32_t larger[4], smaller[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float2 low = unpack_pair<Bf16>(words[8 * i + 2 * j]),
                         high = unpack_pair<Bf16>(words[8 * i + 2 * j + 1]);
            const float x[4] = {low.x * by, low.y * by, high.x * by, high.y * by};
            split_e4m3(x, larger[j], smaller[j]);
        }
        uint8_t* const at = panel + Swizzle<8>::offset(row, part % 4 * 2 + i);
        *reinterpret_cast<uint4*>(at) = make_uint4(larger[0], larger[1], larger[2], larger[3]);
        *reinterpret_cast<uint4*>(at + Shape::kPanelBytes) = make_uint4(smaller[0], smaller[1], smaller[2], smaller[3]);
    }
    uint8_t* const last = memory.at(memory.query(Shape::kPanels - 1));
    *reinterpret_cast<uint2*>(last + Swizzle<8>::offset(row, part / 2) + part % 2 * 8) =
        make_uint2(multiply_bfloats(rotary.x, Bf16::pack(by, by)), multiply_bfloats(rotary.y, Bf16::pack(by, by)));
    // Codes cannot be infinite: a row that is keeps no finite score.
    if (part == 0) memory.factors()[row] = isinf(largest) ? NAN : power_over(0, by);
    fence_async_shared();
}

// The products of the MLA decode over e4m3 codes, 16 rows (mla_decode_fp8/wgmma_bulk.cu).
//
// Accumulators are those of mla/wgmma_shape.h: number i = 4j + 2h + e of a thread is that of token 16w + 8h + g, or, since values
// are loaded in pairs of columns, of column 64b + 16w + 2g + h of block b of the output.
//
// Keys are multiplied as the codes they are; values as fp16, since sums over many pages need more bits than the FP8 adder keeps. A
// product takes about 120 cycles to be complete and 13 of the tensor cores' time (workbench/probes/wgmma_rates.cu), and its registers
// are free only then: operands have several buffers.

template <class Shape>
struct Fp8SmallMProducts {
    using Row = Fp8Row;
    static constexpr int kSlotsOfLane = 4;   // query rows a thread has
    static constexpr int kKeyBuffers = 2;    // operands of a scale's columns
    static constexpr int kKeySums = 3;       // scales whose sums there is room for
    static constexpr int kValueBuffers = 3;  // operands of a block of columns
    static constexpr int kTerms = 2;         // of a query
    static_assert(kKeyBuffers <= kKeySums && kKeySums < Row::kGroups, "sums outlast operands");

    const Fp8SmallMMemory<Shape>& memory;
    int group, warp, lane;

    using Output = float[Shape::kBlocks][Shape::kSums];
    using Scores = float[Shape::kSums];

    __device__ __forceinline__ int row_of(int slot) const { return row_of_slot(slot, lane); }

    /// Scores of a page of which this warp has the 16 tokens at `tokens`, times `units` of the rows, and those tokens' scales. Codes
    /// are e4m3 operands as they lie there. Both terms of the queries are columns of one product, 16 cycles where two would take 26; a
    /// group of 128 columns has sums of its own, short enough for the FP8 adder's fraction bits. `under_way` is called when all
    /// products are.
    template <class UnderWay>
    __device__ __forceinline__ void multiply_keys(
        Scores& scores, float4 (&scales)[2], uint32_t tokens, const float (&units)[kSlotsOfLane],
        UnderWay under_way) const {
        constexpr int kPanel = Shape::kPanelBytes / 16;  // in a descriptor
        constexpr int kSteps = Row::kGroup / 32;         // products along a group's columns
        // Of the larger terms, then of the smaller ones; a group's are added up before the third one behind it begins.
        float sums[kKeySums][kTerms * Shape::kSums];
        const uint64_t queries = wgmma_operand(memory.query(0));
        const uint32_t own = tokens + lane % 16 * Row::kBytes + lane / 16 * 16;  // for ldmatrix
        uint32_t rotary[4][4], codes[kKeyBuffers][kSteps][4];
        const auto add = [&](int g) {
            float (&sum)[kTerms * Shape::kSums] = sums[g % kKeySums];
            if (g == 0) wgmma_results(scores);
            wgmma_results(sum);
#pragma unroll
            for (int i = 0; i < Shape::kSums; ++i) {
                const float4& by = scales[i / 2 % 2];
                scores[i] += (g == 0 ? by.x : g == 1 ? by.y : g == 2 ? by.z : by.w) * (sum[i] + sum[Shape::kSums + i]);
            }
        };
#pragma unroll
        for (int step = 0; step < 4; ++step) ldmatrix_x4(rotary[step], own + Row::kRopeStart + step * 32);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            Wgmma16<Shape::kRows, Bf16>::product(
                scores, rotary[step], queries + (Shape::kPanels - 1) * kPanel + 2 * step, step > 0);
        }
        wgmma_commit();
#pragma unroll
        for (int scale = 0; scale < Row::kGroups; ++scale) {
            if (scale >= kKeyBuffers) wgmma_wait<kKeyBuffers - 1>();
            uint32_t (&operands)[kSteps][4] = codes[scale % kKeyBuffers];
#pragma unroll
            for (int step = 0; step < kSteps; ++step)
                ldmatrix_x4(operands[step], own + scale * Row::kGroup + step * 32);
            if (scale == kKeySums) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    scales[h] = *reinterpret_cast<const float4*>(
                        memory.at(tokens) + (lane / 4 + 8 * h) * Row::kBytes + Row::kScales);
                }
            }
            if (scale >= kKeySums) add(scale - kKeySums);
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                Wgmma<kTerms * Shape::kRows>::product(
                    sums[scale % kKeySums], operands[step], queries + kTerms * scale * kPanel + 2 * step, step > 0);
            }
            wgmma_commit();
        }
        under_way();
        wgmma_wait<1>();  // the last group's products are under way
#pragma unroll
        for (int g = Row::kGroups - kKeySums; g + 1 < Row::kGroups; ++g) add(g);
        wgmma_wait<0>();
        add(Row::kGroups - 1);
#pragma unroll
        for (int i = 0; i < Shape::kSums; ++i) scores[i] *= units[slot_of(i)];
    }

    /// The columns that block `block` of the output has here: each group's own half of them comes first.
    __device__ __forceinline__ int columns_of(int block) const {
        const int turn = group * (Row::kLatent / 2);
        return block * 64 + (block < Shape::kBlocks / 2 ? turn : -turn);
    }

    /// out += codes^T weights^T. The transposing ldmatrix gives lane (g, t) columns 2g, 2g + 1 of tokens 2t, 2t + 1, a byte each;
    /// sorted by column they are rows g and g + 8 of the operand. `slots` are the halves of the page.
    __device__ __forceinline__ void multiply_values(Output& out, const uint32_t (&slots)[2]) const {
        constexpr int kSteps = Shape::kTokens / 16;       // products along the tokens
        constexpr int kPlane = Shape::kWeightPlane / 16;  // in a descriptor
        const uint64_t weights = wgmma_operand(memory.weights(group, 0));
        const uint64_t turn = group * (Row::kGroups / 2 * kPlane);
        const uint32_t in_slot = lane * Row::kBytes + warp * 16;
        uint32_t codes[kValueBuffers][kSteps][4];
        uint32_t loaded[2][2][4];  // [block % 2][half]
        const auto load = [&](int block) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
                ldmatrix_x4_trans(loaded[block % 2][half], slots[half] + in_slot + columns_of(block));
        };
        load(0);
#pragma unroll
        for (int block = 0; block < Shape::kBlocks; ++block) {
            if (block + 1 < Shape::kBlocks) load(block + 1);
            if (block >= kValueBuffers) wgmma_wait<kValueBuffers - 1>();
            uint32_t (&operands)[kSteps][4] = codes[block % kValueBuffers];
#pragma unroll
            for (int octet = 0; octet < 2 * kSteps; ++octet) {
                const uint32_t bytes = loaded[block % 2][octet / 4][octet % 4];
                const uint32_t sorted = permute_bytes<0x3120>(bytes, bytes);
                operands[octet / 2][octet % 2 * 2] = unpack_e4m3_low(sorted);
                operands[octet / 2][octet % 2 * 2 + 1] = unpack_e4m3_high(sorted);
            }
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                Wgmma16<Shape::kRows, Fp16>::product(
                    out[block], operands[step],
                    weights + block / 2 * kPlane + (block < Shape::kBlocks / 2 ? turn : 0 - turn) + step * 2, true);
            }
            wgmma_commit();
        }
        wgmma_wait<0>();
#pragma unroll
        for (int block = 0; block < Shape::kBlocks; ++block) wgmma_results(out[block]);
    }
};

}  // namespace mla
