// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes on wgmma with tokens as the rows of both products: what lies where in shared memory.
//
// See mla_decode_fp8/wgmma_bulk.cu for the algorithm.
#pragma once

#include <cstdint>

#include "tile/coded_latent_shape.h"
#include "tile/wgmma_latent_shape.h"

/// 16 query rows by whole pages of 64 tokens, which two warpgroups take in turns. kSlots slots of half a page lie in shared memory,
/// rows as they are in the cache.
template <int kSlots_>
struct CodedPages {
    static constexpr int kSlots = kSlots_;
    using Row = CodedRow;
    using Schedule = DecodeScheduleOf<PageSchedule::kTokens, PageSchedule::kStartSteps, PageSchedule::kLeastSteps, true, false>;
    using Arguments = CodedArguments<Schedule>;
    static constexpr int kRows = 16, kTokens = PageSchedule::kTokens;
    // Queries in the 128-byte swizzle: for each scale's 128 columns a panel of their larger e4m3 terms and one of the smaller ones
    // (tile/wgmma_coded_terms.h), then the rotary columns, bf16.
    static constexpr int kPanels = 2 * Row::kGroups + 1;
    static constexpr int kPanelBytes = kRows * 128;
    static constexpr int kBlocks = Row::kLatent / 64;    // 64 columns of the output: the rows of one product
    static constexpr int kSums = 8;                      // accumulators of a product in a thread
    static constexpr int kConsumers = 256, kThreads = kConsumers + 128;
    static constexpr int kConsumerRegisters = 224, kProducerRegisters = 56;
    static constexpr bool kDropFirst = false;            // whether L2 is told to drop pages first

    static constexpr int kWeights = kPanels * kPanelBytes;           // [group of warps][scale][row][token], fp16, behind the queries
    static constexpr int kWeightPlane = kRows * 128;
    static constexpr int kSlot = kWeights + 2 * Row::kGroups * kWeightPlane;
    static constexpr int kSlotBytes = kSlotTokens * Row::kBytes;
    static constexpr int kMaxima = kSlot + kSlots * kSlotBytes;      // [group][warp][row] floats
    static constexpr int kTotals = kMaxima + 2 * 4 * kRows * 4;      // [group][warp][row]: shares of sums
    static constexpr int kReferences = kTotals + 2 * 4 * kRows * 4;  // [group][row]
    static constexpr int kFactors = kReferences + 2 * kRows * 4;     // [row]: what the queries were divided by
    static constexpr int kLargest = kFactors + kRows * 4;            // [group][warp]: of the scales
    static constexpr int kUnits = kLargest + 2 * 4 * 4;              // [group]: of the weights
    static constexpr int kBarriers = kUnits + 16;
    static constexpr int kSame = kBarriers + kSlots * 16 + 3 * 8;     // behind [slot] full, [slot] empty, [group] read, checked
    static constexpr int kPlans = (kSame + 8 + 15) / 16 * 16;         // [warp]: CodedPlan::Kept
    static constexpr int kPlanBytes = 48;
    static constexpr int kLengths = kPlans + kConsumers / 32 * kPlanBytes;
    static constexpr int kMostLengths = 1024;                         // of so many requests
    static constexpr int kSharedBytes = kLengths + kMostLengths * 4;

    /// At the end of a piece the warpgroups exchange halves of the output's columns, fp32, in place of queries and weights. The
    /// pitch spreads the accumulators of a warp over all banks.
    static constexpr int kHalf = Row::kLatent / 2, kExchangePitch = kHalf + 4;  // floats
    static constexpr int kExchangeBytes = kRows * kExchangePitch * 4;
    static_assert(2 * kExchangeBytes <= kSlot, "the exchange fits where queries and weights were");

    /// A part that blocks of a cluster add up, fp32, in place of pages: a row is its columns, then its LSE.
    static constexpr int kPartPitch = Row::kLatent + 4;  // floats, spread over the banks as above
    static_assert(kRows * kPartPitch * 4 <= kSlots * kSlotBytes, "a part fits where pages were");
    static_assert(kSlotBytes % 128 == 0 && kBarriers % 16 == 0, "bulk copies and barriers are aligned");
    static_assert(kSharedBytes <= 227 * 1024, "Hopper offers a block 227 KB");
};

template <class Shape>
struct CodedMemory {
    uint8_t* start;  // 1024-byte aligned
    uint32_t base;   // its shared address

    __device__ __forceinline__ uint8_t* at(uint32_t shared) const { return start + (shared - base); }
    __device__ __forceinline__ uint32_t query(int panel) const { return base + panel * Shape::kPanelBytes; }
    __device__ __forceinline__ uint32_t weights(int group, int scale) const {
        return base + Shape::kWeights + (group * CodedRow::kGroups + scale) * Shape::kWeightPlane;
    }
    __device__ __forceinline__ uint32_t slot(uint32_t index) const { return base + Shape::kSlot + index * Shape::kSlotBytes; }
    __device__ __forceinline__ float* exchange(int half) const {
        return reinterpret_cast<float*>(start + half * Shape::kExchangeBytes);
    }
    __device__ __forceinline__ float* maxima(int group, int warp) const {
        return reinterpret_cast<float*>(start + Shape::kMaxima) + (group * 4 + warp) * Shape::kRows;
    }
    __device__ __forceinline__ float* totals(int group, int warp) const {
        return reinterpret_cast<float*>(start + Shape::kTotals) + (group * 4 + warp) * Shape::kRows;
    }
    __device__ __forceinline__ float* references(int group) const {
        return reinterpret_cast<float*>(start + Shape::kReferences) + group * Shape::kRows;
    }
    __device__ __forceinline__ float* factors() const { return reinterpret_cast<float*>(start + Shape::kFactors); }
    __device__ __forceinline__ float* largest(int group) const {
        return reinterpret_cast<float*>(start + Shape::kLargest) + group * 4;
    }
    __device__ __forceinline__ float* part() const { return reinterpret_cast<float*>(start + Shape::kSlot); }
    /// Lengths as they were when the block started, and whether they still are.
    __device__ __forceinline__ int* lengths() const { return reinterpret_cast<int*>(start + Shape::kLengths); }
    template <class Plan>
    __device__ __forceinline__ Plan& plan(int warp) const {
        static_assert(sizeof(Plan) <= Shape::kPlanBytes, "plans fit");
        return *reinterpret_cast<Plan*>(start + Shape::kPlans + warp * Shape::kPlanBytes);
    }
    __device__ __forceinline__ int* same() const { return reinterpret_cast<int*>(start + Shape::kSame); }
    __device__ __forceinline__ float* units() const { return reinterpret_cast<float*>(start + Shape::kUnits); }

    /// Half a page has landed; is read.
    __device__ __forceinline__ uint32_t full(uint32_t slot) const { return base + Shape::kBarriers + slot * 8; }
    __device__ __forceinline__ uint32_t empty(uint32_t slot) const { return full(Shape::kSlots + slot); }
    /// A warpgroup's weights are read.
    __device__ __forceinline__ uint32_t read(int group) const { return full(2 * Shape::kSlots + group); }
    /// same() is known.
    __device__ __forceinline__ uint32_t checked() const { return full(2 * Shape::kSlots + 2); }
};
