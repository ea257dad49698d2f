// SPDX-License-Identifier: MIT
// The products of the MLA decode over e4m3 codes, 16 rows (mla_decode_fp8/wgmma_bulk.cu): codes become fp16 on their way to wgmma.
//
// Accumulators are those of ptx/wgmma_16bit.h with tokens (scores) or columns (output) as rows and query rows as columns:
// number i = 4j + 2h + e of a thread is query row 8j + 2t + e (t = lane % 4; its "slot" 2j + e) of token 16w + 8h + g, or of
// column 64b + 16w + 2g + h of block b of the output (w = warp of the group, g = lane / 4).
//
// A product takes about 120 cycles to be complete and 13 of the tensor cores' time (benchmarks/dev/wgmma_rates.cu), and its
// registers are free only then: kCodeBuffers chunks of two products are converted or under way, and codes are loaded one ahead.
#pragma once

#include "ptx/ldmatrix.h"
#include "ptx/permute_bytes.h"
#include "ptx/unpack_fp8.h"
#include "ptx/wgmma_16bit.h"
#include "tile/wgmma_coded_shape.h"

template <class Shape>
struct CodedProducts {
    using Row = CodedRow;
    static constexpr int kSlotsOfLane = 4;  // query rows a thread has
    static constexpr int kCodeBuffers = 5;

    const CodedMemory<Shape>& memory;
    int group, warp, lane;

    using Output = float[Shape::kBlocks][Shape::kSums];
    using Scores = float[Shape::kSums];
    using Operands = uint32_t[kCodeBuffers][2][4];

    static __device__ __forceinline__ constexpr int slot_of(int i) { return i / 4 * 2 + i % 2; }  // of accumulator i
    __device__ __forceinline__ int row_of(int slot) const { return slot / 2 * 8 + lane % 4 * 2 + slot % 2; }

    /// Scores of a page; `tokens` is where the codes of this lane's token for ldmatrix start.
    __device__ __forceinline__ void multiply_keys(
        Scores& scores, const float4 (&scales)[2], uint32_t tokens) const {
        constexpr int kPanel = Shape::kPanelBytes / 16;  // in a descriptor
        float sums[Row::kGroups][Shape::kSums];
        Operands codes;
        const uint64_t queries = wgmma_operand(memory.query(0));
        uint32_t rotary[4][4];
#pragma unroll
        for (int step = 0; step < 4; ++step) ldmatrix_x4(rotary[step], tokens + Row::kRopeStart + step * 32);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            Wgmma16<Shape::kRows, Bf16>::product(
                scores, rotary[step], queries + (Shape::kPanels - 1) * kPanel + 2 * step, step > 0);
        }
        wgmma_commit();
        // A chunk: 32 columns of a scale's group, the groups in turns.
        constexpr int kChunks = Row::kLatent / 32;
        uint32_t loaded[2][4];
        const auto load = [&](int chunk) {
            ldmatrix_x4(loaded[chunk % 2], tokens + chunk % Row::kGroups * Row::kGroup + chunk / Row::kGroups * 32);
        };
        load(0);
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            const int scale = chunk % Row::kGroups, column = chunk / Row::kGroups * 32;
            if (chunk + 1 < kChunks) load(chunk + 1);
            const uint32_t(&bytes)[4] = loaded[chunk % 2];
            if (chunk >= kCodeBuffers) wgmma_wait<kCodeBuffers - 1>();
            uint32_t(&operands)[2][4] = codes[chunk % kCodeBuffers];
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                operands[step][0] = unpack_e4m3_low(bytes[2 * step]);
                operands[step][1] = unpack_e4m3_low(bytes[2 * step + 1]);
                operands[step][2] = unpack_e4m3_high(bytes[2 * step]);
                operands[step][3] = unpack_e4m3_high(bytes[2 * step + 1]);
            }
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                const int at = scale * Row::kGroup + column + step * 16;
                Wgmma16<Shape::kRows, Fp16>::product(
                    sums[scale], operands[step], queries + at / 64 * kPanel + at % 64 / 8, at % Row::kGroup > 0);
            }
            wgmma_commit();
        }
        wgmma_wait<0>();
        wgmma_results(scores);
#pragma unroll
        for (int g = 0; g < Row::kGroups; ++g) wgmma_results(sums[g]);
#pragma unroll
        for (int i = 0; i < Shape::kSums; ++i) {
            const float4& by = scales[i / 2 % 2];
            scores[i] += by.x * sums[0][i] + by.y * sums[1][i] + by.z * sums[2][i] + by.w * sums[3][i];
            scores[i] *= memory.factors()[row_of(slot_of(i))];
        }
    }

    /// out += codes^T weights^T. The transposing ldmatrix gives lane (g, t) columns 2g, 2g + 1 of tokens 2t, 2t + 1, a byte each;
    /// sorted by column they are rows g and g + 8 of the operand. `slots` are the halves of the page.
    __device__ __forceinline__ void multiply_values(Output& out, const uint32_t (&slots)[2]) const {
        const uint64_t weights = wgmma_operand(memory.weights(group, 0));
        const uint32_t in_slot = lane * Row::kBytes + warp * 16;
        Operands codes;
        // A chunk: 32 tokens and a block of columns.
        constexpr int kChunks = 2 * Shape::kBlocks;
        uint32_t loaded[2][4];
        const auto load = [&](int chunk) {
            ldmatrix_x4_trans(loaded[chunk % 2], slots[chunk / Shape::kBlocks] + in_slot + chunk % Shape::kBlocks * 64);
        };
        load(0);
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            const int half = chunk / Shape::kBlocks, block = chunk % Shape::kBlocks;
            if (chunk + 1 < kChunks) load(chunk + 1);
            const uint32_t(&bytes)[4] = loaded[chunk % 2];
            if (chunk >= kCodeBuffers) wgmma_wait<kCodeBuffers - 1>();
            uint32_t(&operands)[2][4] = codes[chunk % kCodeBuffers];
#pragma unroll
            for (int octet = 0; octet < 4; ++octet) {
                const uint32_t sorted = permute_bytes<0x3120>(bytes[octet], bytes[octet]);
                operands[octet / 2][octet % 2 * 2] = unpack_e4m3_low(sorted);
                operands[octet / 2][octet % 2 * 2 + 1] = unpack_e4m3_high(sorted);
            }
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                Wgmma16<Shape::kRows, Fp16>::product(
                    out[block], operands[step],
                    weights + block / 2 * (Shape::kWeightPlane / 16) + (2 * half + step) * 2, true);
            }
            wgmma_commit();
        }
        wgmma_wait<0>();
#pragma unroll
        for (int block = 0; block < Shape::kBlocks; ++block) wgmma_results(out[block]);
    }
};
