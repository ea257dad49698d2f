// SPDX-License-Identifier: MIT
// MLA decode over a cache of e4m3 codes and scales: arguments, tile shapes, and what lies where in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8.h"
#include "mla/schedule.h"
#include "split_kv.h"

namespace mla {

/// A row of the cache: 512 codes, 4 scales, 64 bf16 columns. Its 41 chunks of 16 bytes are one more than a multiple of
/// the banks' eight, so eight neighbouring rows spread over all banks: ldmatrix reads them as they lie in memory.
struct Fp8Row {
    static constexpr int kLatent = 512, kRope = 64, kWidth = kLatent + kRope;  // columns
    static constexpr int kGroups = 4, kGroup = kLatent / kGroups;              // scales of a token, columns of a scale
    static constexpr int kScales = kLatent, kRopeStart = kScales + 4 * kGroups;  // bytes
    static constexpr int kBytes = kRopeStart + 2 * kRope;
    static constexpr int kPage = 64;  // tokens
    static_assert(kBytes / 16 % 8 == 1, "rows must start at different banks");
};

/// Tokens of a copy: half a page.
constexpr int kSlotTokens = 32;

/// The bits of a power of two that brings queries of magnitudes up to `largest` (>= 0) to 2^to .. 2^(to + 1), small ones less far.
/// In fp16 numbers up to 2^15 keep all of bf16's bits.
__device__ __forceinline__ uint32_t query_exponent(float largest, int to = 14) {
    const int exponent = static_cast<int>(bits_from_float(largest) >> 23);
    return static_cast<uint32_t>(max(1, min(253, 254 + to - exponent))) << 23;
}

/// 2^exponent over a power of two, both within the normal range.
__device__ __forceinline__ float power_over(int exponent, float power) {
    return float_from_bits((static_cast<uint32_t>(254 + exponent) << 23) - bits_from_float(power));
}

/// Weights are made with scales over a reference, a power of two, which is never less than this.
constexpr float kLeastScale = 0x1p-100f;

/// The least power of two that is no less than `scale`, which is positive.
__device__ __forceinline__ float power_of_two_above(float scale) {
    return float_from_bits((bits_from_float(scale) + 0x7fffffu) & 0x7f800000u);
}

template <class Schedule>
struct Fp8Arguments {
    const uint8_t* q;        // [batch, seqlen_q, heads, 576] bf16
    const uint8_t* cache;    // [num_blocks, 64, 656] bytes
    const int* block_table;  // [batch, max_blocks]
    uint8_t* o;              // [batch, seqlen_q, heads, 512] bf16
    float* lse;              // [batch, heads, seqlen_q]
    Schedule schedule;
    SplitWorkspace parts;  // rows as DecodeSplits orders them
    int seqlen_q, heads, max_blocks;
    int pages;         // of the cache
    int row_tiles;     // blocks of a group
    int cluster;       // blocks that add up their parts of a request in shared memory, where requests are cut alike
    int throttle_set;  // which of mla/throttle.h; -1: none
    bool guess;        // whether blocks work with the lengths as they are before the kernel before has ended
    bool causal;
    float scale;    // softmax_scale * log2(e)
    int count_set;  // which of part_counts blocks merge parts by (mla/fp8_small_m_merge.h); -1: a second kernel does
};

/// 16 * kRowTiles query rows (seqlen_q x heads, flattened) by 32 tokens a step, on eight warps.
///
/// For the scores a warp takes one scale's 128 columns (and a quarter of the rotary ones) of half of the tokens; the four groups'
/// parts meet in shared memory. For the output it takes 64 columns. kSlots slots of 32 tokens wait in shared memory.
template <int kRowTiles_, int kSlots_>
struct Fp8Tile {
    static constexpr int kRowTiles = kRowTiles_, kSlots = kSlots_;
    static constexpr int kTokens = kSlotTokens, kWarps = 8, kThreads = 32 * kWarps;
    static constexpr int kRows = 16 * kRowTiles;
    using Row = Fp8Row;
    using Schedule = DecodeScheduleOf<kTokens, 64 / kTokens, 64 / kTokens>;
    using Arguments = Fp8Arguments<Schedule>;

    static constexpr int kWarpTokens = kTokens / (kWarps / Row::kGroups);
    static constexpr int kGroupSteps = Row::kGroup / 16;     // products along a group's columns
    static constexpr int kQueryFragments = kGroupSteps + 1;  // and one for the rotary ones
    static constexpr int kColumns = Row::kLatent / kWarps, kOutTiles = kColumns / 8;  // a warp's share of the output

    static constexpr int kSlotBytes = kSlotTokens * Row::kBytes;
    // A row of weights is padded, so that the eight rows of one ldmatrix start at different banks.
    static constexpr int kWeightPitch = kTokens * 2 + 16, kWeightPlane = kRows * kWeightPitch;
    static constexpr int kScorePlane = kRows * kTokens * 4;
    // Shared memory, in this order.
    static constexpr int kScores = kSlots * kSlotBytes;                          // [group][row][token], fp32
    static constexpr int kWeights = kScores + Row::kGroups * kScorePlane;        // [group][row][token], fp16, padded
    static constexpr int kTokenScales = kWeights + Row::kGroups * kWeightPlane;  // [group][token], fp32
    static constexpr int kFactors = kTokenScales + Row::kGroups * kTokens * 4;   // [row]
    static constexpr int kSharedBytes = kFactors + kRows * 4;

    static_assert(kRowTiles <= 2, "more rows' queries and outputs do not fit into the registers");
    static_assert(kSlots > 1, "the next tokens are copied under the current ones' products");
    static_assert(kSharedBytes <= 99 * 1024, "Ada offers a block 99 KB");

    /// A barrier among the warps.
    static __device__ __forceinline__ void meet() { __syncthreads(); }
};

}  // namespace mla
