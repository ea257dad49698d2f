// SPDX-License-Identifier: MIT
// MLA decode of 16 or 32 rows on wgmma with tokens as the rows of both products: what lies where in shared memory.
//
// See mla/small_m.h for the algorithm.
#pragma once

#include <cstdint>

#include "mla/wgmma_shape.h"

namespace mla {

/// kRowTiles: 1 for 16 rows, which both warpgroups have, of pages in turns; 2 for 32, 16 to each warpgroup, of all pages.
/// kStages: pages in shared memory.
template <int kRowTiles_, int kStages_>
struct SmallMShape {
    static constexpr int kRowTiles = kRowTiles_, kStages = kStages_;
    static constexpr int kLatent = 512, kWidth = 576;  // columns of a value, of a key
    static constexpr int kRows = 16 * kRowTiles, kTokens = PageSchedule::kTokens;
    static constexpr int kPanels = kWidth / 64, kValuePanels = kLatent / 64;
    static constexpr int kPanelBytes = kTokens * 128;  // of a page: 64 columns in the 128-byte swizzle
    static constexpr int kQueryPanel = kRows * 128;    // of the queries
    static constexpr int kParts = 3;                   // of a page, with a barrier each
    static constexpr int kPartPanels = kPanels / kParts;
    static constexpr int kQueryBuffers = kRowTiles == 1 ? 2 : 1;
    static constexpr int kConsumerThreads = 256, kThreads = kConsumerThreads + 128;
    static constexpr int kSecondQuery = kPanels * kQueryPanel;  // where the second buffer begins
    static constexpr int kRegisters = 144;
    static_assert(kStages % 2 == 0 || kRowTiles == 2, "a warpgroup's pages would meet both parities in no order");

    static constexpr int kQuery = kStages * kPanels * kPanelBytes;  // behind the pages
    static constexpr int kProbabilities = kQuery + kQueryBuffers * kSecondQuery;
    static constexpr int kProbabilityBytes = 16 * 128;  // of a warpgroup
    /// Half of the output of 16 rows, fp32; the pitch spreads the accumulators of a warp over all banks.
    static constexpr int kHalf = kLatent / 2, kClusterReducePitch = kHalf + 4;  // floats
    static constexpr int kClusterReduce = kProbabilities + 2 * kProbabilityBytes;
    static constexpr int kClusterReduceBytes = 16 * kClusterReducePitch * 4;
    static constexpr int kMaxima = kClusterReduce + 2 * kClusterReduceBytes;  // [group][warp][16] floats
    static constexpr int kTotals = kMaxima + 2 * 4 * 16 * 4;                  // [group][warp][16]: shares of sums
    static constexpr int kReferences = kTotals + 2 * 4 * 16 * 4;              // [group][16]
    static constexpr int kBarriers = kReferences + 2 * 16 * 4;
    static constexpr int kSharedBytes = kBarriers + (kStages * 2 * kParts + 4) * 8;
    static_assert(kSharedBytes <= 227 * 1024, "Hopper offers a block 227 KB");
};

template <class Shape>
struct SmallMMemory {
    uint8_t* start;  // 1024-byte aligned
    uint32_t base;   // its shared address

    __device__ __forceinline__ uint32_t tokens(int stage, int panel) const {
        return base + (stage * Shape::kPanels + panel) * Shape::kPanelBytes;
    }
    __device__ __forceinline__ uint32_t query(int buffer, int panel) const {
        return base + Shape::kQuery + buffer * Shape::kSecondQuery + panel * Shape::kQueryPanel;
    }
    __device__ __forceinline__ uint32_t probabilities(int group) const {
        return base + Shape::kProbabilities + group * Shape::kProbabilityBytes;
    }
    __device__ __forceinline__ float* exchange(int half) const {
        return reinterpret_cast<float*>(start + Shape::kClusterReduce + half * Shape::kClusterReduceBytes);
    }
    __device__ __forceinline__ float* maxima(int group, int warp) const {
        return reinterpret_cast<float*>(start + Shape::kMaxima) + (group * 4 + warp) * 16;
    }
    __device__ __forceinline__ float* totals(int group, int warp) const {
        return reinterpret_cast<float*>(start + Shape::kTotals) + (group * 4 + warp) * 16;
    }
    /// Of the rows of a block in a cluster, at its end.
    __device__ __forceinline__ float* lse() const { return maxima(0, 0); }
    __device__ __forceinline__ float* references(int group) const {
        return reinterpret_cast<float*>(start + Shape::kReferences) + group * 16;
    }

    /// A part of a page has landed.
    __device__ __forceinline__ uint32_t full(int stage, int part) const {
        return base + Shape::kBarriers + (stage * Shape::kParts + part) * 8;
    }
    /// A part of a page is read.
    __device__ __forceinline__ uint32_t empty(int stage, int part) const {
        return base + Shape::kBarriers + ((Shape::kStages + stage) * Shape::kParts + part) * 8;
    }
    __device__ __forceinline__ uint32_t query_full(int buffer) const {
        return base + Shape::kBarriers + (Shape::kStages * 2 * Shape::kParts + buffer) * 8;
    }
    __device__ __forceinline__ uint32_t query_empty(int buffer) const { return query_full(buffer) + 16; }
};

}  // namespace mla
