// SPDX-License-Identifier: MIT
// MLA decode on wgmma: what a block is told, what lies where in its shared memory, and which query rows a thread has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/tensor_map.h"
#include "mla/gather.h"
#include "mla/schedule.h"
#include "mla/whole_requests.h"

namespace mla {

// Which query rows a thread has where tokens (of scores) or columns (of outputs) are the 64 rows of a wgmma product, and query rows
// its columns.
//
// Accumulators are those of ptx/wgmma.h: number i = 4j + 2h + e of a thread is query row 8j + 2t + e, the thread's "slot" 2j + e, of
// row 16w + 8h + g of the product (w = warp % 4, g = lane / 4, t = lane % 4).

/// Of accumulator i.
__device__ __forceinline__ constexpr int slot_of(int i) { return i / 4 * 2 + i % 2; }

__device__ __forceinline__ int row_of_slot(int slot, int lane) { return slot / 2 * 8 + lane % 4 * 2 + slot % 2; }

// MLA decode on wgmma: what a block is told, and what lies where in its shared memory.
//
// See mla_decode/wgmma_tma.cu for the algorithm.

#ifndef START_PAGES
#error "START_PAGES is a define of the kernel file: pages that the start of a request of 16 or 32 rows counts for"
#endif

/// Steps of schedules are whole pages. WideSchedule: of 64 rows and more.
using PageSchedule = DecodeScheduleOf<64, START_PAGES, 1>;
using WideSchedule = DecodeScheduleOf<64, 2, 1>;

template <class Schedule>
struct LatentArgumentsOf {
    const uint8_t* q;        // [batch, seqlen_q, heads, 576] bf16
    const uint8_t* cache;    // [num_blocks, 64, 576] bf16
    const int* block_table;  // [batch, max_blocks]
    uint8_t* o;              // [batch, seqlen_q, heads, 512] bf16
    float* lse;              // [batch, heads, seqlen_q]
    Schedule schedule;
    SplitWorkspace parts;  // rows as DecodeSplits orders them; 16 and 32 rows
    LatentSplits shares;   // more rows
    bool paired;  // 16 rows: the blocks of requests that are as expected are clusters of two, which need no parts
    int seqlen_q, heads, max_blocks;
    int row_tiles;      // blocks of a group
    int query_bytes;    // that TMA brings per block and request: boxes are no higher than a request's rows
    int query_buffers;  // 1; no constant, since that makes other machine code than was measured
    bool causal;
    float scale;  // softmax_scale * log2(e)
    // The cache; with Shape::kRotaryApart [batch, tokens of max_blocks pages, 64] bf16, as one matrix.
    TensorMap rotary;
};

using LatentArguments = LatentArgumentsOf<WideSchedule>;
using SmallMArguments = LatentArgumentsOf<PageSchedule>;  // 16 and 32 rows

/// kPair: how many neighbouring blocks read the same tokens together, each bringing half of them to both. kOnce: whether L2 is
/// told to drop pages first.
/// kRotaryApart: the last 64 columns of keys are not those of the cache, but lie in an array of their own.
/// kAlone: blocks of 64 rows that read their pages alone are bound by how soon a page's place is free again.
/// kOnceUneven: whether it is where requests are not as the host expects.
template <int kPair_, bool kOnce_, bool kRotaryApart_ = false, bool kOnceUneven_ = false>
struct LatentShape {
    static constexpr int kPair = kPair_;
    static constexpr bool kOnce = kOnce_, kOnceUneven = kOnceUneven_;
    static constexpr bool kRotaryApart = kRotaryApart_, kAlone = kPair == 1 && !kRotaryApart;
    static constexpr bool kKeepsOutput = kAlone && !kOnce;  // L2 may be told to keep the output
    static constexpr bool kExpectedStart =
        kExpectedCut && !kRotaryApart;  // requests are compared with what the host expects
    /// Who computes which tokens. Single blocks lose 0.5 to 3 % where short requests are left whole; other pairs have not been measured.
    using Scheduler = std::conditional_t<kPair == 2 && !kRotaryApart, WholeScheduler, DecodeScheduler>;
    static constexpr int kLatent = 512, kWidth = 576;  // columns of a value, of a key
    static constexpr int kRows = 64, kTokens = PageSchedule::kTokens;
    static constexpr int kPanels = kWidth / 64;           // columns of a tile in shared memory, 64 (128 bytes) each
    static constexpr int kPanelBytes = 64 * 128;          // of 64 rows or tokens, in the 128-byte swizzle
    static constexpr int kHalfPanels = kLatent / 64 / 2;  // of values, for one warpgroup
    static constexpr int kBoxPanels = kHalfPanels / 2;    // of values, that one instruction loads
    static constexpr int kParts = 3;                      // of a page: two halves of the values, the rest of the keys
    static constexpr int kHalf = kLatent / 2;             // columns of the output for one warpgroup
    static constexpr int kStages = 2;                     // pages in shared memory: stage i has those of warpgroup i
    static constexpr int kConsumerThreads = 256, kThreads = kConsumerThreads + 128;
    static constexpr int kConsumerRegisters = 232, kProducerRegisters = 40;

    // Shared memory: the queries, and behind them
    static constexpr int kStage = kPanels * kPanelBytes;                             // [stage][panel]
    static constexpr int kProbabilities = kStage + kStages * kPanels * kPanelBytes;  // [row][token] bf16, swizzled
    static constexpr int kReferences = kProbabilities + kPanelBytes;                 // [owner][row] floats
    static constexpr int kSums = kReferences + 2 * kRows * 4;  // [piece % 2][warpgroup][row] floats
    static constexpr int kBarriers = kSums + 2 * 2 * kRows * 4;
    static constexpr int kOpen = kBarriers + (kStages * (kPanels + kParts) + 4) * 8;
    static constexpr int kSharedBytes = kOpen + static_cast<int>(sizeof(OpenSplits));
    static constexpr int kSecondQuery = kPanelBytes / 2;  // where in each panel the second buffer begins
    static_assert(kSharedBytes <= 227 * 1024, "Hopper offers a block 227 KB");
    static_assert(LatentGather<LatentArguments>::kBytes <= kProbabilities - kStage, "the merge has the pages' place");
};

/// A row's reference for exponents stays until a score exceeds the one it was made for by 2^kReferenceSlack: what was accumulated
/// rarely has to follow, and probabilities lose no bits.
constexpr float kReferenceSlack = 8.0f;

/// Which buffer holds the queries of a piece, and the parity of its barriers' phase.
struct QueryTurn {
    int buffers;
    int buffer = 0, parity = 0;

    /// 0 and 1 in turns.
    __device__ __forceinline__ int alternate() const { return buffers == 1 ? parity : buffer; }
    __device__ __forceinline__ void advance() {
        buffer = buffer + 1 == buffers ? 0 : buffer + 1;
        parity ^= buffer == 0 ? 1 : 0;
    }
};

template <class Shape>
struct LatentMemory {
    uint8_t* start;  // 1024-byte aligned
    uint32_t base;   // its shared address

    __device__ __forceinline__ uint32_t query(int panel) const { return base + panel * Shape::kPanelBytes; }
    __device__ __forceinline__ uint32_t tokens(int stage, int panel) const {
        return base + Shape::kStage + (stage * Shape::kPanels + panel) * Shape::kPanelBytes;
    }
    __device__ __forceinline__ uint32_t probabilities() const { return base + Shape::kProbabilities; }
    /// For exponents of the rows, as of the last page of this owner.
    __device__ __forceinline__ float* references(int owner) const {
        return reinterpret_cast<float*>(start + Shape::kReferences) + owner * Shape::kRows;
    }
    /// Of the weights of a warpgroup's pages in one piece; pieces alternate.
    __device__ __forceinline__ float* sums(int parity, int group) const {
        return reinterpret_cast<float*>(start + Shape::kSums) + (2 * parity + group) * Shape::kRows;
    }

    /// Requests whose parts this block merges.
    __device__ __forceinline__ OpenSplits& open() const { return *reinterpret_cast<OpenSplits*>(start + Shape::kOpen); }

    /// The box that begins with this panel of a stage has landed; the other panels' barriers are not used.
    __device__ __forceinline__ uint32_t full(int stage, int panel) const {
        return base + Shape::kBarriers + (stage * Shape::kPanels + panel) * 8;
    }
    /// A part's panels are free: 0 to 3 or 4 to 7, which warpgroup 0 or 1 reads last, or 8, which has no values.
    __device__ __forceinline__ uint32_t empty(int stage, int part) const {
        return base + Shape::kBarriers + (Shape::kStages * Shape::kPanels + Shape::kParts * stage + part) * 8;
    }
    __device__ __forceinline__ uint32_t query_full(int buffer) const {
        return base + Shape::kBarriers + (Shape::kStages * (Shape::kPanels + Shape::kParts) + buffer) * 8;
    }
    __device__ __forceinline__ uint32_t query_empty(int buffer) const { return query_full(buffer) + 16; }
};

/// Tokens from `count` on hold NaN, which no probability of zero turns into zero: clear them in all columns of the values in `stage`. By
/// the 128 threads of a warpgroup, before a fence for asynchronous products and a barrier.
template <class Shape, class Memory>
__device__ __forceinline__ void clear_tokens(const Memory& memory, int stage, int count, int thread) {
    constexpr int kChunks = 8;  // of 16 bytes in a panel's row
    for (int i = thread; i < (Shape::kTokens - count) * kChunks; i += 128) {
        uint8_t* const at = memory.start + (memory.tokens(stage, 0) - memory.base) + count * 128 + i * 16;
#pragma unroll
        for (int panel = 0; panel < Shape::kLatent / 64; ++panel) {
            *reinterpret_cast<uint4*>(at + panel * Shape::kPanelBytes) = make_uint4(0, 0, 0, 0);
        }
    }
}

}  // namespace mla
