// SPDX-License-Identifier: MIT
// The order in which the blocks of the Hopper attention forward take tiles of queries.
#pragma once

#include <cstdint>

#include "ceil_div.h"
#include "ptx/atomic.h"
#include "ptx/tma.h"

namespace attention {

/// What the kernel needs beside the tensor maps.
struct FlashProblem {
    uint8_t* o;  // [batch, queries, heads, head_dim]
    float* lse;  // [batch, heads, queries]
    int batch, queries, keys, heads, heads_per_key_head;
    bool causal;
    float scale;      // softmax_scale * log2(e)
    int tiles;        // of one head
    int section;      // heads (of all batches) whose tiles are taken together, so that their keys and values share L2
    int units;        // of work, in all
    bool pairs;       // a unit is a long and a short tile of one head, which add up to the same length everywhere
    bool rotates;     // a block's next unit would be the same pair of another head: then it is the pair after that
    unsigned* taken;  // units taken beyond each block's first, by whoever is free; null: every block has its share
};

/// One tile of queries and how many steps of keys its last row sees.
struct alignas(16) FlashTile {
    int batch, head, first_query, steps;
};
constexpr int kFlashNoTile = -1;  // `steps` after the last tile

/// Steps of keys that the last of `rows` rows from `first_query` on sees; none if all lie past the end.
template <class Shape>
__device__ __forceinline__ int flash_steps(const FlashProblem& p, int first_query, int rows) {
    if (first_query >= p.queries) return 0;
    // Causal: query i sees keys j <= i + keys - queries.
    const int last = min(first_query + rows, p.queries) - 1;
    const int seen = p.causal ? min(p.keys, last + 1 + p.keys - p.queries) : p.keys;
    return seen <= 0 ? 0 : ceil_div(seen, Shape::kKeys);
}

/// The same for rows of a tile.
template <class Shape>
__device__ __forceinline__ int flash_steps(const FlashProblem& p, const FlashTile& tile, int row, int rows) {
    return flash_steps<Shape>(p, tile.first_query + row, rows);
}

/// Whether queries are loaded for a warpgroup whose rows begin at `row`: here also where there are none, as zeros.
__device__ __forceinline__ constexpr bool flash_has_rows(const FlashProblem&, const FlashTile&, int) { return true; }

/// What tiles that are at work differ in beside their rows: here nothing.
struct FlashExtent {
    static constexpr int first_step = 0;
    __device__ __forceinline__ FlashExtent(const FlashProblem&, const FlashTile&) {}
    /// How many keys row `row` of the queries sees.
    __device__ __forceinline__ int seen(const FlashProblem& p, int row) const {
        return p.causal ? min(p.keys, row + 1 + p.keys - p.queries) : p.keys;
    }
};

/// Load a warpgroup's 64 rows of a tile.
template <class Shape>
__device__ __forceinline__ void load_queries(
    const FlashProblem&, const TensorMap& map, uint32_t to, uint32_t full, const FlashTile& tile, int group) {
    const int row = tile.first_query + group * 64;
    if constexpr (Shape::kQueriesOnce)
        tma_load_5d(to, map, full, 0, row, 0, tile.head, tile.batch, policy_evict_first());
    else tma_load_5d(to, map, full, 0, row, 0, tile.head, tile.batch);
}

/// Where a tile's keys and values lie.
template <class Shape>
struct FlashSource {
    int head, batch;

    __device__ __forceinline__ FlashSource(const FlashProblem& p, const FlashTile& tile)
        : head(tile.head / p.heads_per_key_head), batch(tile.batch) {}

    /// Load a step of them.
    __device__ __forceinline__ void load(const TensorMap& map, uint32_t to, uint32_t full, int step) const {
        tma_load_5d(to, map, full, 0, step * Shape::kKeys, 0, head, batch);
    }
};

/// The tiles of one block, in order. One thread.
template <class Shape>
struct FlashScheduler {
    int unit;
    bool second = false;   // of a pair
    unsigned fetched = 0;  // asked for before it is needed, since the answer takes a while

    __device__ __forceinline__ explicit FlashScheduler(const FlashProblem&) : unit(static_cast<int>(blockIdx.x)) {}
    __device__ __forceinline__ bool more(const FlashProblem& p) const { return unit < p.units; }
    /// Once per tile, any time before next().
    __device__ __forceinline__ void fetch(const FlashProblem& p) {
        if (p.taken != nullptr) fetched = fetch_add(p.taken, 1u);
    }
    __device__ __forceinline__ void next(const FlashProblem& p) {
        const int blocks = static_cast<int>(gridDim.x);
        second = p.pairs && !second && pair(p) != p.tiles / 2;
        if (!second) unit = p.taken != nullptr ? blocks + static_cast<int>(fetched) : unit + blocks;
    }

    /// Which pair of its head a unit is. The middle tile of an odd number is alone: no block should have only such ones.
    __device__ __forceinline__ int pair(const FlashProblem& p) const {
        return (unit + (p.rotates ? unit / static_cast<int>(gridDim.x) : 0)) % ((p.tiles + 1) / 2);
    }

    __device__ __forceinline__ FlashTile tile(const FlashProblem& p) const {
        int head, index;  // index: place among the head's tiles, the longest first
        if (p.pairs) {
            head = unit / ((p.tiles + 1) / 2);
            index = second ? p.tiles - 1 - pair(p) : pair(p);
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
        t.steps = flash_steps<Shape>(p, t.first_query, Shape::kQueries);
        return t;
    }
};

/// Where an instance's tiles come from, unless it says otherwise: sequences of one length.
struct FlashSchedule {
    static constexpr int kProducerRegisters = 24;  // beside two consumers, for which it leaves 240
    /// What the producer goes on with: the tile as it is in registers, or as it was announced.
    static __device__ __forceinline__ const FlashTile& kept(const FlashTile& tile, const FlashTile&) { return tile; }

    using Problem = FlashProblem;
    using Tile = FlashTile;
    using Extent = FlashExtent;
    template <class Shape>
    using Source = FlashSource<Shape>;
    template <class Shape>
    using Scheduler = FlashScheduler<Shape>;
    /// What a warp does before its first thread decides on tiles.
    template <class Shape>
    static __device__ __forceinline__ void prepare(const FlashProblem&) {}
};

}  // namespace attention
