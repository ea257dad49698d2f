// SPDX-License-Identifier: MIT
// MLA decode over a cache of e4m3 codes and scales: arguments, tile shapes, and what lies where in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fp8.h"
#include "ptx/named_barrier.h"
#include "ptx/prefetch.h"
#include "split_kv.h"
#include "tile/decode_schedule.h"
#include "tile/wide_rows.h"

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

/// The bits of a power of two that brings queries of magnitudes up to `largest` (>= 0) to 2^14 .. 2^15, where fp16 holds all of
/// bf16's bits; small ones less far.
__device__ __forceinline__ uint32_t query_exponent(float largest) {
    const int exponent = static_cast<int>(bits_from_float(largest) >> 23);
    return static_cast<uint32_t>(max(1, min(253, 268 - exponent))) << 23;
}

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

/// Ask queries, page numbers and lengths into L2, all blocks together; hints, so also before the kernels this one depends on
/// have ended: L2 is where their writes go.
template <class Arguments>
__device__ __forceinline__ void fetch_coded_inputs(const Arguments& a, int thread, int threads) {
    const int stride = static_cast<int>(gridDim.x) * threads, first = static_cast<int>(blockIdx.x) * threads + thread;
    const auto fetch = [&](const void* array, long long bytes) {
        for (long long at = first * 128LL; at < bytes; at += stride * 128LL) {
            prefetch_l2(static_cast<const uint8_t*>(array) + at);
        }
    };
    const long long batch = a.schedule.batch;
    fetch(a.schedule.seqlens, batch * 4);
    fetch(a.block_table, batch * a.max_blocks * 4);
    fetch(a.q, batch * a.seqlen_q * a.heads * CodedRow::kWidth * 2);
}

/// 16 * kRowTiles query rows (seqlen_q x heads, flattened) by kTokens tokens a step, on kWarps warps.
///
/// For the scores a warp takes one scale's 128 columns (and a quarter of the rotary ones) of a part of the tokens and rows;
/// the four groups' parts meet in shared memory. For the output it takes 512 / kWarps columns. kSlots slots of 32 tokens
/// wait in shared memory. kStretch is how many kinds of work may be mixed between two barriers: 2, a step's softmax and the
/// next step's scores; 3, also the product with values of the step before. That takes two buffers of scores and weights.
/// kBulk fills slots by bulk copies, which a warp in a warpgroup of its own issues, so that it can leave its registers to the
/// others; else all threads do by cp.async.
template <int kRowTiles_, int kTokens_, int kSlots_, int kWarps_, int kStretch_, bool kQueryInRegisters_, bool kBulk_>
struct CodedTile {
    static constexpr int kRowTiles = kRowTiles_, kTokens = kTokens_, kSlots = kSlots_, kWarps = kWarps_;
    static constexpr int kStretch = kStretch_, kBuffers = kStretch > 1 ? 2 : 1;
    static constexpr bool kQueryInRegisters = kQueryInRegisters_;
    static constexpr bool kBulk = kBulk_;
    static constexpr int kWorkers = 32 * kWarps, kThreads = kWorkers + (kBulk ? 128 : 0);
    static constexpr int kWorkerRegisters = kWarps == 8 ? 232 : 104, kProducerRegisters = 40;
    static constexpr int kRows = 16 * kRowTiles;
    static constexpr int kStepSlots = kTokens / kSlotTokens;
    using Row = CodedRow;
    using Schedule = DecodeScheduleOf<kTokens, 64 / kTokens, 64 / kTokens>;
    using Arguments = CodedArguments<Schedule>;

    static constexpr int kRowParts = kRowTiles <= 2 ? 1 : 2, kTokenParts = kWarps / Row::kGroups / kRowParts;
    static constexpr int kWarpRowTiles = kRowTiles / kRowParts, kWarpTokens = kTokens / kTokenParts;
    static constexpr int kGroupSteps = Row::kGroup / 16;     // products along a group's columns
    static constexpr int kQueryFragments = kGroupSteps + 1;  // and one for the rotary ones
    static constexpr int kColumns = Row::kLatent / kWarps, kOutTiles = kColumns / 8;  // a warp's share of the output

    static constexpr int kSlotBytes = kSlotTokens * Row::kBytes;
    // A row of weights is padded, so that the eight rows of one ldmatrix start at different banks.
    static constexpr int kWeightPitch = kTokens * 2 + 16, kWeightPlane = kRows * kWeightPitch;
    static constexpr int kScorePlane = kRows * kTokens * 4;
    static constexpr int kQueryShare = kQueryInRegisters ? 0 : kWarpRowTiles * kQueryFragments * 32 * 16;  // of a warp
    // A buffer, in this order.
    static constexpr int kScores = 0;                                           // [group][row][token], fp32
    static constexpr int kWeights = kScores + Row::kGroups * kScorePlane;       // [group][row][token], fp16, padded
    static constexpr int kTokenScales = kWeights + Row::kGroups * kWeightPlane;  // [group][token], fp32
    static constexpr int kFactors = kTokenScales + Row::kGroups * kTokens * 4;  // [row]
    static constexpr int kBufferBytes = kFactors + kRows * 4;
    // Shared memory, in this order.
    static constexpr int kFirstBuffer = kSlots * kSlotBytes;
    static constexpr int kQuery = kFirstBuffer + kBuffers * kBufferBytes;                 // [row part, group], fragments
    static constexpr int kBarriers = kQuery + Row::kGroups * kRowParts * kQueryShare;  // [slot] full, [slot] empty
    static constexpr int kSharedBytes = kBarriers + (kBulk ? kSlots * 16 : 0);

    /// Byte where a step's buffer starts.
    static __device__ __forceinline__ int buffer(int step) { return kFirstBuffer + (step & (kBuffers - 1)) * kBufferBytes; }

    static_assert(kTokens == 32 || kTokens == 64, "a page is a whole number of steps");
    static_assert(kWarpTokens % 16 == 0 && kColumns % 32 == 0, "ldmatrix.x4 brings 16 tokens, and 32 columns");
    static_assert(kBufferBytes % 16 == 0, "buffers and fragments are read 16 bytes at a time");
    static_assert(kSlots > kBuffers * kStepSlots, "the next tokens are copied under the current ones' products");
    static_assert(kWarps == 8 || kWarps == 16, "the registers are shared out for these");
    static_assert(kBulk || kStepSlots == 1, "groups of cp.async count steps");
    static_assert(kSharedBytes <= (kBulk ? 227 : 99) * 1024, "Hopper offers a block 227 KB, Ada 99 KB");

    /// threadIdx.x in a loop over steps: where registers are short, addresses are made of it anew in every step.
    static __device__ __forceinline__ int thread() {
        return kRowTiles > 2 ? recomputed_thread() : static_cast<int>(threadIdx.x);
    }
    /// A barrier among the warps that compute.
    static __device__ __forceinline__ void meet() { named_barrier_sync(1, kWorkers); }
};
