// SPDX-License-Identifier: MIT
// The products of the MLA decode over e4m3 codes, 16 rows (mla_decode_fp8/wgmma_bulk.cu).
//
// Accumulators are those of tile/query_slots.h: number i = 4j + 2h + e of a thread is that of token 16w + 8h + g, or, since values
// are loaded in pairs of columns, of column 64b + 16w + 2g + h of block b of the output.
//
// Keys are multiplied as the codes they are; values as fp16, since sums over many pages need more bits than the FP8 adder keeps. A
// product takes about 120 cycles to be complete and 13 of the tensor cores' time (benchmarks/dev/wgmma_rates.cu), and its registers
// are free only then: operands have several buffers.
#pragma once

#include "ptx/ldmatrix.h"
#include "ptx/permute_bytes.h"
#include "ptx/unpack_fp8.h"
#include "ptx/wgmma.h"
#include "ptx/wgmma_16bit.h"
#include "tile/query_slots.h"
#include "tile/wgmma_coded_shape.h"

template <class Shape>
struct CodedProducts {
    using Row = CodedRow;
    static constexpr int kSlotsOfLane = 4;   // query rows a thread has
    static constexpr int kKeyBuffers = 2;    // operands of a scale's columns
    static constexpr int kKeySums = 3;       // scales whose sums there is room for
    static constexpr int kValueBuffers = 3;  // operands of a block of columns
    static constexpr int kTerms = 2;         // of a query
    static_assert(kKeyBuffers <= kKeySums && kKeySums < Row::kGroups, "sums outlast operands");

    const CodedMemory<Shape>& memory;
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
        Scores& scores, float4 (&scales)[2], uint32_t tokens, const float (&units)[kSlotsOfLane], UnderWay under_way) const {
        constexpr int kPanel = Shape::kPanelBytes / 16;  // in a descriptor
        constexpr int kSteps = Row::kGroup / 32;         // products along a group's columns
        // Of the larger terms, then of the smaller ones; a group's are added up before the third one behind it begins.
        float sums[kKeySums][kTerms * Shape::kSums];
        const uint64_t queries = wgmma_operand(memory.query(0));
        const uint32_t own = tokens + lane % 16 * Row::kBytes + lane / 16 * 16;  // for ldmatrix
        uint32_t rotary[4][4], codes[kKeyBuffers][kSteps][4];
        const auto add = [&](int g) {
            float(&sum)[kTerms * Shape::kSums] = sums[g % kKeySums];
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
            uint32_t(&operands)[kSteps][4] = codes[scale % kKeyBuffers];
#pragma unroll
            for (int step = 0; step < kSteps; ++step) ldmatrix_x4(operands[step], own + scale * Row::kGroup + step * 32);
            if (scale == kKeySums) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    scales[h] = *reinterpret_cast<const float4*>(memory.at(tokens) + (lane / 4 + 8 * h) * Row::kBytes + Row::kScales);
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
        wgmma_wait<1>();   // the last group's products are under way
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
        constexpr int kSteps = Shape::kTokens / 16;  // products along the tokens
        constexpr int kPlane = Shape::kWeightPlane / 16;     // in a descriptor
        const uint64_t weights = wgmma_operand(memory.weights(group, 0));
        const uint64_t turn = group * (Row::kGroups / 2 * kPlane);
        const uint32_t in_slot = lane * Row::kBytes + warp * 16;
        uint32_t codes[kValueBuffers][kSteps][4];
        uint32_t loaded[2][2][4];  // [block % 2][half]
        const auto load = [&](int block) {
#pragma unroll
            for (int half = 0; half < 2; ++half) ldmatrix_x4_trans(loaded[block % 2][half], slots[half] + in_slot + columns_of(block));
        };
        load(0);
#pragma unroll
        for (int block = 0; block < Shape::kBlocks; ++block) {
            if (block + 1 < Shape::kBlocks) load(block + 1);
            if (block >= kValueBuffers) wgmma_wait<kValueBuffers - 1>();
            uint32_t(&operands)[kSteps][4] = codes[block % kValueBuffers];
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
