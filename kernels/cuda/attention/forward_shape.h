// SPDX-License-Identifier: MIT
// One instance of the Hopper attention forward: its tile, its warps, and where everything lies in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "attention/forward_scheduler.h"
#include "ptx/ldst.h"
#include "ptx/mma.h"

namespace attention {

/// What an instance does, to be combined.
enum FlashOptions {
    kFlashPingPong = 1,    // consumers issue their products in turns, so that one's softmax meets the other's products
    kFlashTwoQueries = 2,  // room for two tiles of queries: the next one's come while this one is at work
    kFlashSeamless = 4,  // a tile's first product with keys is issued together with the last product of the one before
    kFlashSharedP =
        8,  // probabilities go through shared memory instead of registers, which have room for more keys then
    kFlashSpareQuery = 16,    // room for one warpgroup's queries beyond a tile's: warpgroups take places in turn
    kFlashLastFirst = 32,     // of those the last warpgroup first, which in causal tiles begins alone
    kFlashStoreSoon = 64,     // an output is stored beside the next tile's first scores, without turns, seamless
    kFlashStoreLate = 128,    // an output is stored beside the next tile's second scores, without turns
    kFlashQueriesOnce = 256,  // queries are the first to leave L2
    kFlashClears = 512,       // an output is set to zero, not overwritten, and its LSE is made behind the next scores
};

/// kGroups consumer warpgroups with 64 query rows each, kKeys keys at a time, rings of kKeyStages and kValueStages tiles.
///
/// kSlack: a row's maximum stays until sums exceed 2^kSlack, or 2^15 where P is fp16, which saves most corrections. Work: whose
/// tiles they are (FlashSchedule).
template <
    class Element_, int kHeadDim_, int kGroups_, int kKeys_, int kOptions_, int kKeyStages_ = 2, int kValueStages_ = 2,
    int kSlack_ = 24, class Schedule_ = FlashSchedule>
struct FlashShape {
    using Element = Element_;
    using Schedule = Schedule_;
    using Problem = typename Schedule::Problem;
    using Tile = typename Schedule::Tile;
    using Extent = typename Schedule::Extent;
    static constexpr int kHeadDim = kHeadDim_, kGroups = kGroups_, kKeys = kKeys_;
    static constexpr int kSlack = std::is_same<Element, Fp16>::value && kSlack_ > 15 ? 15 : kSlack_;
    static constexpr int kKeyStages = kKeyStages_, kValueStages = kValueStages_;
    static constexpr bool kPingPong = (kOptions_ & kFlashPingPong) != 0 && kGroups > 1;
    static constexpr bool kSeamless = (kOptions_ & kFlashSeamless) != 0;
    static constexpr bool kSharedP = (kOptions_ & kFlashSharedP) != 0;
    static constexpr int kQueryStages = (kOptions_ & kFlashTwoQueries) != 0 ? 2 : 1;
    static constexpr bool kSpareQuery = (kOptions_ & kFlashSpareQuery) != 0;
    static constexpr bool kLastFirst = (kOptions_ & kFlashLastFirst) != 0;
    static constexpr bool kStoreSoon = (kOptions_ & kFlashStoreSoon) != 0 && kSeamless;
    static constexpr bool kStoreLate = (kOptions_ & kFlashStoreLate) != 0;
    static constexpr bool kClears = (kOptions_ & kFlashClears) != 0;
    static constexpr bool kQueriesOnce = (kOptions_ & kFlashQueriesOnce) != 0;
    // Queries are given back before the last step's softmax.
    static constexpr bool kEarlyQuery = kQueryStages == 1 && kGroups > 1;
    static constexpr int kQueries = 64 * kGroups;
    static constexpr int kConsumerThreads = 128 * kGroups;
    static constexpr int kThreads =
        kConsumerThreads + 128;                           // and a warpgroup that gives registers away; two threads work
    static constexpr bool kMovesRegisters = kGroups > 1;  // a single consumer has all it can address
    // The thread that loads two tiles of queries ahead has more to remember.
    static constexpr int kProducerLeast = kQueryStages == 2 ? 40 : 24;
    static constexpr int kProducerRegisters = kGroups > 2 ? 32
                                              : Schedule::kProducerRegisters < kProducerLeast
                                                  ? kProducerLeast
                                                  : Schedule::kProducerRegisters;
    static constexpr int kConsumerRegisters = kGroups == 4 ? 112 : kGroups == 3 ? 160 : (504 - kProducerRegisters) / 2;

    // Tiles are [kHeadDim / 64][rows] of 128 bytes, in TMA's 128-byte swizzle; a tile of queries is one warpgroup's.
    static constexpr int kQueryBytes = 64 * kHeadDim * 2, kKeyBytes = kKeys * kHeadDim * 2;
    static constexpr int kQueryPitch = 64 * 128, kKeyPitch = kKeys * 128;  // between columns of 64
    static constexpr int kQuerySlots = kGroups * kQueryStages + kSpareQuery;
    static constexpr int kKeysAt = kQuerySlots * kQueryBytes, kValuesAt = kKeysAt + kKeyStages * kKeyBytes;
    // Probabilities of a warpgroup, like queries: columns of 64 keys, [64 rows] of 128 bytes.
    static constexpr int kProbabilityPitch = 64 * 128,
                         kProbabilityBytes = kSharedP ? (kKeys + 63) / 64 * kProbabilityPitch : 0;
    static constexpr int kProbabilitiesAt = kValuesAt + kValueStages * kKeyBytes;
    static constexpr int kTilesAt = kProbabilitiesAt + kGroups * kProbabilityBytes;
    // What is known of a tile is read once more when its output is stored, after the first step of the next one. Tiles that
    // follow may be known by then, as many as there is room for the queries of and two that had but one step.
    static constexpr int kTiles = 8;
    static constexpr int kBarriersAt = kTilesAt + (kGroups + 1) * kTiles * static_cast<int>(sizeof(Tile));
    static constexpr int kSharedBytes = kBarriersAt + (2 * kQuerySlots + 2 * kKeyStages + 2 * kValueStages + 4) * 8;

    static_assert(kHeadDim % 64 == 0 && kHeadDim <= 256, "wgmma has at most 256 columns");
    static_assert(!kSpareQuery || kQueryStages == 1, "one or the other");
    static_assert(!kPingPong || (!kStoreSoon && !kStoreLate), "others wait for their turn while an output is stored");
    static_assert(!kStoreSoon || !kStoreLate, "one or the other");
    static_assert(
        !kClears || (!kStoreSoon && !kStoreLate), "registers of a product that has been issued cannot be set");
    static_assert(!kSharedP || kKeys % 32 == 0, "halves of probabilities are whole products");
    static_assert(kKeys % 16 == 0 && kKeys <= 256, "P V advances 16 keys at a time, a TMA box has at most 256 rows");
    static_assert(kGroups >= 1 && kGroups <= 4, "registers");
    static_assert(kSharedBytes <= 227 * 1024, "what a block can have");
    // Registers are allotted in eights; what consumers take beyond that is what the producers gave, or they wait for ever.
    static_assert(
        !kMovesRegisters ||
            kGroups * kConsumerRegisters + kProducerRegisters <= (kGroups + 1) * (65536 / kThreads / 8 * 8),
        "more registers than a block has");
};

/// Addresses in one block's shared memory. `group` is a consumer warpgroup; a block's tiles have the numbers 0, 1, ...
template <class Shape>
struct FlashMemory {
    uint32_t start;

    /// What a warpgroup is told about a tile, or, as one more group, the producer of values.
    __device__ __forceinline__ typename Shape::Tile& tile(int group, unsigned number) const {
        auto* const tiles = reinterpret_cast<typename Shape::Tile*>(swizzled_shared() + Shape::kTilesAt);
        return tiles[group * Shape::kTiles + number % Shape::kTiles];
    }
    /// Where a warpgroup's queries of a tile lie, and the parity of that use of the place.
    __device__ __forceinline__ static int slot(int group, unsigned number) {
        if (Shape::kLastFirst) group = Shape::kGroups - 1 - group;
        if (Shape::kSpareQuery) return static_cast<int>((number * Shape::kGroups + group) % Shape::kQuerySlots);
        return group * Shape::kQueryStages + static_cast<int>(number % Shape::kQueryStages);
    }
    __device__ __forceinline__ static uint32_t parity(int group, unsigned number) {
        if (Shape::kLastFirst) group = Shape::kGroups - 1 - group;
        if (Shape::kSpareQuery) return (number * Shape::kGroups + group) / Shape::kQuerySlots % 2;
        return number / Shape::kQueryStages % 2;
    }
    __device__ __forceinline__ uint32_t query(int slot) const { return start + slot * Shape::kQueryBytes; }
    __device__ __forceinline__ uint32_t keys(int stage) const {
        return start + Shape::kKeysAt + stage * Shape::kKeyBytes;
    }
    __device__ __forceinline__ uint32_t values(int stage) const {
        return start + Shape::kValuesAt + stage * Shape::kKeyBytes;
    }
    __device__ __forceinline__ uint32_t probabilities(int group) const {
        return start + Shape::kProbabilitiesAt + group * Shape::kProbabilityBytes;
    }
    __device__ __forceinline__ uint32_t barrier(int i) const { return start + Shape::kBarriersAt + 8 * i; }
    __device__ __forceinline__ uint32_t query_full(int slot) const { return barrier(slot); }
    __device__ __forceinline__ uint32_t query_empty(int slot) const { return barrier(Shape::kQuerySlots + slot); }
    __device__ __forceinline__ uint32_t ring(int i) const { return barrier(2 * Shape::kQuerySlots + i); }
    __device__ __forceinline__ uint32_t keys_full(int stage) const { return ring(stage); }
    __device__ __forceinline__ uint32_t keys_empty(int stage) const { return ring(Shape::kKeyStages + stage); }
    __device__ __forceinline__ uint32_t values_full(int stage) const { return ring(2 * Shape::kKeyStages + stage); }
    __device__ __forceinline__ uint32_t values_empty(int stage) const {
        return ring(2 * Shape::kKeyStages + Shape::kValueStages + stage);
    }
    /// Between the two producers: a tile whose values are to be loaded. Two of them may be under way.
    __device__ __forceinline__ uint32_t tile_full(unsigned number) const {
        return ring(2 * (Shape::kKeyStages + Shape::kValueStages) + static_cast<int>(number % 2));
    }
    __device__ __forceinline__ uint32_t tile_empty(unsigned number) const { return tile_full(number) + 16; }
};

}  // namespace attention
