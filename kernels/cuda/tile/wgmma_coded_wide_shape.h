// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes on wgmma for 32 and 64 rows: what lies where in shared memory.
//
// See mla_decode_fp8/wgmma_bulk.cu for the algorithm.
#pragma once

#include <cstdint>

#include "tile/coded_latent_shape.h"
#include "tile/wgmma_latent_shape.h"

/// kRows query rows by pages of 64 tokens. kSlots slots of half a page lie in shared memory, rows as they are in the cache.
template <int kRows_, int kSlots_>
struct CodedWide {
    static constexpr int kRows = kRows_, kSlots = kSlots_;
    using Row = CodedRow;
    using Arguments = CodedArguments<PageSchedule>;
    static constexpr int kTokens = PageSchedule::kTokens;
    static constexpr int kPanels = Row::kWidth / 64;   // of the queries, 64 columns each: fp16, the last one bf16
    static constexpr int kPanelBytes = kRows * 128;    // in the 128-byte swizzle
    static constexpr int kBlocks = Row::kLatent / 64 / 2;  // of 64 columns of the output: the rows of one product, a warpgroup's
    static constexpr int kSums = kRows / 2;            // accumulators of a product in a thread
    static constexpr int kWorkers = 384, kThreads = kWorkers + 128;
    static constexpr int kValueRegisters = 176, kProducerRegisters = 32;  // the scores' keep the 128 they start with
    static constexpr bool kDropFirst = kRows == 64;    // whether L2 is told to drop pages first

    static constexpr int kWeights = kPanels * kPanelBytes;  // [buffer][row][token], fp16, behind the queries
    static constexpr int kWeightPlane = kRows * 128;
    static constexpr int kSlot = kWeights + 2 * kWeightPlane;
    static constexpr int kSlotBytes = kSlotTokens * Row::kBytes;
    static constexpr int kScales = kSlot + kSlots * kSlotBytes;  // [buffer][group][pair of 4][octet][2] fp16
    static constexpr int kScalePlane = Row::kGroups * kTokens * 2;
    static constexpr int kChanges = kScales + 2 * kScalePlane;   // [buffer][row] floats: for what was accumulated before
    static constexpr int kMaxima = kChanges + 2 * kRows * 4;     // [warp][row]; at the end shares of sums
    static constexpr int kShifts = kMaxima + 4 * kRows * 4;      // [row]: subtracted from exponents
    static constexpr int kFactors = kShifts + kRows * 4;         // [row]: what the queries were divided by
    static constexpr int kFinals = kFactors + kRows * 4;         // [row]: normalise the output
    static constexpr int kFlags = kFinals + kRows * 4;           // [buffer][warp]: whether something must be raised
    static constexpr int kLargest = kFlags + 32;                 // [warp]: of the scales
    static constexpr int kChanged = kLargest + 16;               // [buffer]: whether changes matter
    static constexpr int kBarriers = kChanged + 16;
    static constexpr int kSharedBytes = kBarriers + kSlots * 16 + 32;  // [slot] full, [slot] empty, [buffer] ready, [buffer] done

    static_assert(kRows == 32 || kRows == 64, "a warpgroup's registers hold half of the output's columns");
    static_assert(kSharedBytes <= 227 * 1024, "Hopper offers a block 227 KB");
};

template <class Shape>
struct WideMemory {
    uint8_t* start;  // 1024-byte aligned
    uint32_t base;   // its shared address

    __device__ __forceinline__ uint8_t* at(uint32_t shared) const { return start + (shared - base); }
    __device__ __forceinline__ float* floats(int offset) const { return reinterpret_cast<float*>(start + offset); }
    __device__ __forceinline__ uint32_t query(int panel) const { return base + panel * Shape::kPanelBytes; }
    __device__ __forceinline__ uint32_t weights(int buffer) const { return base + Shape::kWeights + buffer * Shape::kWeightPlane; }
    __device__ __forceinline__ uint32_t slot(uint32_t index) const { return base + Shape::kSlot + index * Shape::kSlotBytes; }
    __device__ __forceinline__ uint8_t* scales(int buffer) const { return start + Shape::kScales + buffer * Shape::kScalePlane; }
    __device__ __forceinline__ float* changes(int buffer) const { return floats(Shape::kChanges) + buffer * Shape::kRows; }
    __device__ __forceinline__ float* maxima(int warp) const { return floats(Shape::kMaxima) + warp * Shape::kRows; }
    __device__ __forceinline__ float* shifts() const { return floats(Shape::kShifts); }
    __device__ __forceinline__ float* factors() const { return floats(Shape::kFactors); }
    __device__ __forceinline__ float* finals() const { return floats(Shape::kFinals); }
    __device__ __forceinline__ int* flags(int buffer) const { return reinterpret_cast<int*>(start + Shape::kFlags) + buffer * 4; }
    __device__ __forceinline__ float* largest() const { return floats(Shape::kLargest); }
    __device__ __forceinline__ int* changed() const { return reinterpret_cast<int*>(start + Shape::kChanged); }

    /// Half a page has landed; is read.
    __device__ __forceinline__ uint32_t full(uint32_t slot) const { return base + Shape::kBarriers + slot * 8; }
    __device__ __forceinline__ uint32_t empty(uint32_t slot) const { return full(Shape::kSlots + slot); }
    /// What a page's copy to a slot reports to.
    __device__ __forceinline__ uint32_t landed(uint32_t slot, uint32_t) const { return full(slot); }
    /// A page's weights and scales are there; are used.
    __device__ __forceinline__ uint32_t ready(int buffer) const { return full(2 * Shape::kSlots + buffer); }
    __device__ __forceinline__ uint32_t done(int buffer) const { return ready(2 + buffer); }
};
