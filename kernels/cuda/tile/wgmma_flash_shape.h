// SPDX-License-Identifier: MIT
// One instance of the Hopper attention forward: its tile, its warps, where everything lies in shared memory, and the order in
// which blocks take tiles.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"

/// kGroups consumer warpgroups with 64 query rows each, kKeys keys at a time, and a ring of kStages key and value tiles.
///
/// kTurns: the consumers issue their products in turns, so that one's softmax runs beside the other's products.
/// kRescaleEarly: the output takes the last step's correction beside the product with the keys, instead of before it.
/// kSlack: a row's maximum stays until another score exceeds it by so much (log2), which saves most corrections.
/// kHeldQuery: queries are read once, into registers, instead of from shared memory in every step.
template <
    class Element_, int kHeadDim_, int kGroups_, int kKeys_, bool kTurns_, bool kRescaleEarly_, bool kHeldQuery_ = false,
    int kSlack_ = 8>
struct FlashShape {
    using Element = Element_;
    static constexpr int kSlack = kSlack_;
    static constexpr bool kHeldQuery = kHeldQuery_;
    static constexpr int kHeadDim = kHeadDim_, kGroups = kGroups_, kKeys = kKeys_, kStages = 2;
    static constexpr bool kTurns = kTurns_ && kGroups > 1, kRescaleEarly = kRescaleEarly_;
    static constexpr int kQueries = 64 * kGroups;
    static constexpr int kConsumerThreads = 128 * kGroups;
    static constexpr int kThreads = kConsumerThreads + 128;   // and a warpgroup that gives its registers away; one thread works
    static constexpr bool kMovesRegisters = kGroups > 1;   // a single consumer has all it can address
    static constexpr int kConsumerRegisters = kGroups == 3 ? 160 : 240;
    static constexpr int kProducerRegisters = kGroups == 3 ? 32 : 24;

    // Tiles are [kHeadDim / 64][rows] of 128 bytes, in TMA's 128-byte swizzle.
    static constexpr int kQueryBytes = kQueries * kHeadDim * 2, kKeyBytes = kKeys * kHeadDim * 2;
    static constexpr int kQueryPitch = kQueries * 128, kKeyPitch = kKeys * 128;   // between columns of 64
    static constexpr int kKeysAt = kQueryBytes, kValuesAt = kKeysAt + kStages * kKeyBytes;
    static constexpr int kBarriersAt = kValuesAt + kStages * kKeyBytes;
    static constexpr int kSharedBytes = kBarriersAt + (2 + 4 * kStages) * 8;

    static_assert(kHeadDim % 64 == 0 && kHeadDim <= 256, "wgmma has at most 256 columns");
    static_assert(kKeys % 16 == 0 && kKeys <= 256, "P V advances 16 keys at a time, a TMA box has at most 256 rows");
    static_assert(kGroups >= 1 && kGroups <= 3, "registers");
    static_assert(kSharedBytes <= 227 * 1024, "what a block can have");
};

/// Addresses in one block's shared memory.
template <class Shape>
struct FlashMemory {
    uint32_t start;

    __device__ __forceinline__ uint32_t query() const { return start; }
    __device__ __forceinline__ uint32_t keys(int stage) const { return start + Shape::kKeysAt + stage * Shape::kKeyBytes; }
    __device__ __forceinline__ uint32_t values(int stage) const {
        return start + Shape::kValuesAt + stage * Shape::kKeyBytes;
    }
    __device__ __forceinline__ uint32_t barrier(int i) const { return start + Shape::kBarriersAt + 8 * i; }
    __device__ __forceinline__ uint32_t query_full() const { return barrier(0); }
    __device__ __forceinline__ uint32_t query_empty() const { return barrier(1); }
    __device__ __forceinline__ uint32_t keys_full(int stage) const { return barrier(2 + stage); }
    __device__ __forceinline__ uint32_t keys_empty(int stage) const { return barrier(2 + Shape::kStages + stage); }
    __device__ __forceinline__ uint32_t values_full(int stage) const { return barrier(2 + 2 * Shape::kStages + stage); }
    __device__ __forceinline__ uint32_t values_empty(int stage) const { return barrier(2 + 3 * Shape::kStages + stage); }
};

/// What the kernel needs beside the tensor maps.
struct FlashProblem {
    uint8_t* o;    // [batch, queries, heads, head_dim]
    float* lse;    // [batch, heads, queries]
    int batch, queries, keys, heads, heads_per_key_head;
    bool causal;
    float scale;   // softmax_scale * log2(e)
    int tiles;     // of one head
    int section;   // heads (of all batches) whose tiles are taken together, so that their keys and values share L2
    int units;     // of work, in all
    bool pairs;    // a unit is a long and a short tile of one head, which add up to the same length everywhere
};

/// One tile of queries and how many steps of keys it sees.
struct FlashTile {
    int batch, head, first_query, steps;
};

/// The tiles of one block, in order.
template <class Shape>
struct FlashWalk {
    int unit;
    bool second = false;   // of a pair

    __device__ __forceinline__ FlashWalk() : unit(static_cast<int>(blockIdx.x)) {}
    __device__ __forceinline__ bool more(const FlashProblem& p) const { return unit < p.units; }
    __device__ __forceinline__ void next(const FlashProblem& p) {
        const int half = (p.tiles + 1) / 2;
        second = p.pairs && !second && unit % half != p.tiles / 2;
        if (!second) unit += static_cast<int>(gridDim.x);
    }

    __device__ __forceinline__ FlashTile tile(const FlashProblem& p) const {
        int head, index;   // index: place among the head's tiles, the longest first
        if (p.pairs) {
            const int half = (p.tiles + 1) / 2, pair = unit % half;
            head = unit / half;
            index = second ? p.tiles - 1 - pair : pair;
        } else {
            const int in_section = p.section * p.tiles, first = unit / in_section * p.section, rest = unit % in_section;
            const int heads = min(p.section, p.batch * p.heads - first);
            head = first + rest % heads;
            index = rest / heads;
        }
        FlashTile t;
        t.batch = head / p.heads;
        t.head = head % p.heads;
        t.first_query = (p.causal ? p.tiles - 1 - index : index) * Shape::kQueries;
        // Causal: query i sees keys j <= i + keys - queries.
        const int last = min(t.first_query + Shape::kQueries, p.queries) - 1;
        const int seen = p.causal ? min(p.keys, last + 1 + p.keys - p.queries) : p.keys;
        t.steps = seen <= 0 ? 0 : ceil_div(seen, Shape::kKeys);
        return t;
    }
};
