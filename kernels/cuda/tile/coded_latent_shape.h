// SPDX-License-Identifier: MIT
// MLA decode over a cache of e4m3 codes and scales: arguments, tile shapes, and what lies where in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "split_kv.h"
#include "tile/decode_schedule.h"

/// A row of the cache: 512 codes, 4 scales, 64 bf16 columns. Its 41 chunks of 16 bytes are one more than a multiple of
/// the banks' eight, so eight neighbouring rows spread over all banks: ldmatrix reads them as they lie in memory.
struct CodedRow {
    static constexpr int kLatent = 512, kRope = 64, kWidth = kLatent + kRope;  // columns
    static constexpr int kGroups = 4, kGroup = kLatent / kGroups;              // scales of a token, columns of a scale
    static constexpr int kScales = kLatent, kRopeStart = kScales + 4 * kGroups;  // bytes
    static constexpr int kBytes = kRopeStart + 2 * kRope;
    static constexpr int kPage = 64;  // tokens
    static_assert(kBytes / 16 % 8 == 1, "rows must start at different banks");
};

/// Tokens of a copy: half a page.
constexpr int kSlotTokens = 32;

template <class Schedule>
struct CodedArguments {
    const uint8_t* q;        // [batch, seqlen_q, heads, 576] bf16
    const uint8_t* cache;    // [num_blocks, 64, 656] bytes
    const int* block_table;  // [batch, max_blocks]
    uint8_t* o;              // [batch, seqlen_q, heads, 512] bf16
    float* lse;              // [batch, heads, seqlen_q]
    Schedule schedule;
    SplitWorkspace parts;  // rows as DecodeParts orders them
    int seqlen_q, heads, max_blocks;
    int row_tiles;  // blocks of a group
    bool causal;
    float scale;  // softmax_scale * log2(e)
};

/// 16 * kRowTiles query rows (seqlen_q x heads, flattened) by kTokens tokens a step, on eight warps.
///
/// For the scores a warp takes one scale's 128 columns (and a quarter of the rotary ones) of half of the tokens or rows;
/// the four groups' parts meet in shared memory. For the output it takes 64 of the 512 columns. kSlots slots of 32 tokens
/// wait in shared memory; kBulk fills them by bulk copies, else by cp.async.
template <int kRowTiles_, int kTokens_, int kSlots_, bool kBulk_, int kBlocks_ = 1>
struct CodedTile {
    static constexpr int kRowTiles = kRowTiles_, kTokens = kTokens_, kSlots = kSlots_, kBlocks = kBlocks_;
    static constexpr bool kBulk = kBulk_;
    static constexpr int kWarps = 8, kThreads = 32 * kWarps;
    static constexpr int kRows = 16 * kRowTiles;
    static constexpr int kStepSlots = kTokens / kSlotTokens;
    using Row = CodedRow;
    using Schedule = DecodeScheduleOf<kTokens, 64 / kTokens, 64 / kTokens>;
    using Arguments = CodedArguments<Schedule>;

    static constexpr int kTokenParts = kRowTiles <= 2 ? 2 : 1, kRowParts = 2 / kTokenParts;
    static constexpr int kWarpRowTiles = kRowTiles / kRowParts, kWarpTokens = kTokens / kTokenParts;
    static constexpr int kGroupSteps = Row::kGroup / 16;                 // products along a group's columns
    static constexpr int kQueryFragments = kGroupSteps + 1;              // and one for the rotary ones
    static constexpr bool kQueryInRegisters = kRowTiles <= 2;
    static constexpr int kOutTiles = Row::kLatent / kWarps / 8;

    static constexpr int kSlotBytes = kSlotTokens * Row::kBytes;
    // A row of weights is padded, so that the eight rows of one ldmatrix start at different banks.
    static constexpr int kWeightPitch = kTokens * 2 + 16, kWeightPlane = kRows * kWeightPitch;
    static constexpr int kScorePlane = kRows * kTokens * 4;
    // In this order.
    static constexpr int kScores = kSlots * kSlotBytes;                   // [group][row][token], fp32
    static constexpr int kWeights = kScores + Row::kGroups * kScorePlane;  // [group][row][token], fp16, padded
    static constexpr int kQuery = kWeights + Row::kGroups * kWeightPlane;  // fragments of all warps
    static constexpr int kQueryBytes =
        kQueryInRegisters ? 0 : kWarps * kWarpRowTiles * kQueryFragments * 32 * 16;
    static constexpr int kTokenScales = kQuery + kQueryBytes;  // [group][token], fp32
    static constexpr int kFactors = kTokenScales + Row::kGroups * kTokens * 4;  // [row]
    static constexpr int kBarriers = kFactors + kRows * 4;                      // [slot]
    static constexpr int kSharedBytes = kBarriers + (kBulk ? kSlots * 8 : 0);

    static_assert(kTokens == 32 || kTokens == 64, "a page is a whole number of steps");
    static_assert(kSlots > kStepSlots, "the next tokens are copied under the current ones' products");
    static_assert(kBulk || kStepSlots == 1, "groups of cp.async count steps");
    static_assert(kSharedBytes <= (kBulk ? 227 : 99) * 1024 / kBlocks, "Hopper offers a block 227 KB, Ada 99 KB");
};
