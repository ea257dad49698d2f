// SPDX-License-Identifier: MIT
// The products of the MLA decode over e4m3 codes, 16 rows (mla_decode_fp8/wgmma_bulk.cu): codes become fp16 on their way to wgmma.
//
// Accumulators are those of ptx/wgmma_16bit.h with tokens (scores) or columns (output) as rows and query rows as columns:
// number i = 4j + 2h + e of a thread is query row 8j + 2t + e (t = lane % 4; its "slot" 2j + e) of token 16w + 8h + g, or of
// column 64b + 16w + 2g + h of block b of the output (w = warp of the group, g = lane / 4).
//
// Keys are multiplied as the codes they are, values as fp16, since sums over many pages need more bits than the FP8 adder keeps.
// A product takes about 120 cycles to be complete and 13 of the tensor cores' time (benchmarks/dev/wgmma_rates.cu), and its
// registers are free only then: kCodeBuffers chunks of two products are converted or under way, and codes are loaded one ahead.
#pragma once

#include "ptx/ldmatrix.h"
#include "ptx/permute_bytes.h"
#include "ptx/unpack_fp8.h"
#include "ptx/wgmma.h"
#include "ptx/wgmma_16bit.h"
#include "tile/wgmma_coded_shape.h"

template <class Shape>
struct CodedProducts {
    using Row = CodedRow;
    static constexpr int kSlotsOfLane = 4;  // query rows a thread has

    const CodedMemory<Shape>& memory;
    int group, warp, lane;

    using Output = float[Shape::kBlocks][Shape::kSums];
    using Scores = float[Shape::kSums];

    static __device__ __forceinline__ constexpr int slot_of(int i) { return i / 4 * 2 + i % 2; }  // of accumulator i
    __device__ __forceinline__ int row_of(int slot) const { return slot / 2 * 8 + lane % 4 * 2 + slot % 2; }

#ifndef TERMS_APART
#define TERMS_APART 0
#endif
#ifndef KEY_BUFFERS
#define KEY_BUFFERS 3
#endif
    /// Scores of a page; `tokens` is where the codes of this lane's token for ldmatrix start. Codes are e4m3 operands as they lie
    /// there; a group of 128 columns has its own sum, short enough for the FP8 adder's fraction bits.
    template <class Meanwhile>
    __device__ __forceinline__ void multiply_keys(
        Scores& scores, const float4 (&scales)[2], uint32_t tokens, Meanwhile meanwhile) const {
        constexpr int kPanel = Shape::kPanelBytes / 16;  // in a descriptor
        constexpr int kSteps = TERMS_APART ? 2 : Row::kGroup / 32;         // products along a chunk's columns
        constexpr int kChunks = Row::kLatent / 32 / kSteps, kOf = Row::kGroup / 32 / kSteps;
        float sums[Row::kGroups][Shape::kSums * (TERMS_APART ? 2 : 1)];
        const uint64_t queries = wgmma_operand(memory.query(0));
        uint32_t rotary[4][4], codes[KEY_BUFFERS][kSteps][4];
#pragma unroll
        for (int step = 0; step < 4; ++step) ldmatrix_x4(rotary[step], tokens + Row::kRopeStart + step * 32);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            Wgmma16<Shape::kRows, Bf16>::product(
                scores, rotary[step], queries + (Shape::kPanels - 1) * kPanel + 2 * step, step > 0);
        }
        wgmma_commit();
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            if (chunk >= KEY_BUFFERS) wgmma_wait<KEY_BUFFERS - 1>();
            uint32_t (&operands)[kSteps][4] = codes[chunk % KEY_BUFFERS];
            const int group = chunk / kOf, first = chunk % kOf * kSteps;
#pragma unroll
            for (int step = 0; step < kSteps; ++step) ldmatrix_x4(operands[step], tokens + (chunk * kSteps + step) * 32);
            wgmma_fence();
            if constexpr (TERMS_APART) {
#pragma unroll
                for (int step = 0; step < kSteps; ++step) {
                    Wgmma<32>::product(
                        sums[group], operands[step], queries + 2 * group * kPanel + 2 * (first + step), first + step > 0);
                }
            } else {
            // The smaller terms first: the longer a sum is, the more of it the adder drops.
#pragma unroll
            for (int product = 0; product < 2 * kSteps; ++product) {
                const int step = product % kSteps, panel = 2 * group + (product < kSteps ? 1 : 0);
                Wgmma<Shape::kRows>::product(sums[group], operands[step], queries + panel * kPanel + 2 * step, product > 0);
            }
            }
            wgmma_commit();
            meanwhile(chunk);
        }
        meanwhile(-1);
        wgmma_wait<0>();
        wgmma_results(scores);
#pragma unroll
        for (int g = 0; g < Row::kGroups; ++g) wgmma_results(sums[g]);
#pragma unroll
        for (int i = 0; i < Shape::kSums; ++i) {
            const float4& by = scales[i / 2 % 2];
            if constexpr (TERMS_APART) {
#pragma unroll
                for (int g = 0; g < Row::kGroups; ++g) sums[g][i] += sums[g][8 + i] * 0.0625f;
            }
            scores[i] += by.x * sums[0][i] + by.y * sums[1][i] + by.z * sums[2][i] + by.w * sums[3][i];
            scores[i] *= memory.factors()[row_of(slot_of(i))];
        }
    }

#ifndef VALUE_STEPS
#define VALUE_STEPS 4
#endif
#ifndef VALUE_BUFFERS
#define VALUE_BUFFERS (VALUE_STEPS == 4 ? 3 : VALUE_STEPS == 2 ? 5 : 8)
#endif
#ifndef VALUES_AHEAD
#define VALUES_AHEAD 0
#endif
    static constexpr int kSteps = VALUE_STEPS, kLoads = VALUE_STEPS / 2;
    static constexpr int kValueChunks = 4 / VALUE_STEPS * Shape::kBlocks;
    using ValueCodes = uint32_t[VALUE_BUFFERS][kSteps][4];
    using Loaded = uint32_t[kLoads][4];

    __device__ __forceinline__ void load_values(Loaded& to, int chunk, const uint32_t (&slots)[2]) const {
        const uint32_t in_slot = lane * Row::kBytes + warp * 16;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            ldmatrix_x4_trans(to[i], slots[kLoads == 2 ? i : chunk / Shape::kBlocks] + in_slot + chunk % Shape::kBlocks * 64);
        }
    }
    __device__ __forceinline__ void convert_values(ValueCodes& codes, int chunk, const Loaded& bytes) const {
        uint32_t(&operands)[kSteps][4] = codes[chunk % VALUE_BUFFERS];
#pragma unroll
        for (int octet = 0; octet < 2 * kSteps; ++octet) {
            const uint32_t sorted = permute_bytes<0x3120>(bytes[octet / 4][octet % 4], bytes[octet / 4][octet % 4]);
            operands[octet / 2][octet % 2 * 2] = unpack_e4m3_low(sorted);
            operands[octet / 2][octet % 2 * 2 + 1] = unpack_e4m3_high(sorted);
        }
    }
    __device__ __forceinline__ void prepare_values(ValueCodes& codes, int chunk, const uint32_t (&slots)[2]) const {
        if (chunk < 0 || chunk >= VALUES_AHEAD) return;
        Loaded loaded;
        load_values(loaded, chunk, slots);
        convert_values(codes, chunk, loaded);
    }
    /// out += codes^T weights^T. The transposing ldmatrix gives lane (g, t) columns 2g, 2g + 1 of tokens 2t, 2t + 1, a byte each;
    /// sorted by column they are rows g and g + 8 of the operand. `slots` are the halves of the page.
    __device__ __forceinline__ void multiply_values(Output& out, ValueCodes& codes, const uint32_t (&slots)[2]) const {
        const uint64_t weights = wgmma_operand(memory.weights(group, 0));
        // A chunk: 32 tokens and a block of columns.
        Loaded loaded[2];
        if (VALUES_AHEAD < kValueChunks) load_values(loaded[VALUES_AHEAD % 2], VALUES_AHEAD, slots);
#pragma unroll
        for (int chunk = 0; chunk < kValueChunks; ++chunk) {
            const int half = chunk / Shape::kBlocks, block = chunk % Shape::kBlocks;
            if (chunk >= VALUES_AHEAD) {
                if (chunk + 1 < kValueChunks) load_values(loaded[(chunk + 1) % 2], chunk + 1, slots);
                if (chunk >= VALUE_BUFFERS) wgmma_wait<VALUE_BUFFERS - 1>();
                convert_values(codes, chunk, loaded[chunk % 2]);
            }
            wgmma_fence();
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
                Wgmma16<Shape::kRows, Fp16>::product(
                    out[block], codes[chunk % VALUE_BUFFERS][step],
                    weights + block / 2 * (Shape::kWeightPlane / 16) + (kSteps * half + step) * 2, true);
            }
            wgmma_commit();
        }
        wgmma_wait<0>();
#pragma unroll
        for (int block = 0; block < Shape::kBlocks; ++block) wgmma_results(out[block]);
    }
};
