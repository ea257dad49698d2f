// SPDX-License-Identifier: MIT
// The Hopper attention forward's tiles for packed sequences of different lengths: another FlashWork for the same producers and
// consumers (tile/wgmma_flash.h). Tiles come from a list that a kernel before made on the device (tile/varlen_plan.h); blocks
// take the next one by a count when they are ready for it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tile/varlen_plan.h"
#include "tile/wgmma_flash.h"

/// What the kernel needs beside the tensor maps.
struct SequenceProblem {
    uint8_t* o;   // [queries, heads, head_dim]
    float* lse;   // [heads, queries]
    int heads, heads_per_key_head;
    int group_heads;             // heads that an entry of the list is for
    bool causal;
    float scale;                 // softmax_scale * log2(e)
    int all_queries, all_keys;   // positions of the tensors
    VarlenPlan* plan;
};

/// One tile: what FlashTile says, and its sequence.
struct alignas(16) SequenceTile {
    int head, first_query, steps, query_start;
    int queries, key_start, keys, unused;
};

/// Steps of keys that `rows` rows of a tile from `row` on see.
template <class Shape>
__device__ __forceinline__ int flash_steps(const SequenceProblem& p, const SequenceTile& tile, int row, int rows) {
    const int first = tile.first_query + row, end = min(first + rows, tile.queries);
    if (first >= end) return 0;
    const int seen = p.causal ? min(tile.keys, end + tile.keys - tile.queries) : tile.keys;
    return seen <= 0 ? 0 : ceil_div(seen, Shape::kKeys);
}

/// Whether a warpgroup's rows, which begin at `row`, have queries. Else none are loaded (tile/sequence_tensor_map.h).
__device__ __forceinline__ bool flash_has_rows(const SequenceProblem&, const SequenceTile& tile, int row) {
    return tile.first_query + row < tile.queries;
}

struct SequenceExtent {
    static constexpr int first_step = 0;
    int keys, ahead;   // ahead: keys that the sequence's first query sees beside its own, if there is a mask
};
__device__ __forceinline__ SequenceExtent flash_extent(const SequenceProblem&, const SequenceTile& tile) {
    return {tile.keys, tile.keys - tile.queries};
}
__device__ __forceinline__ int flash_seen(const SequenceProblem& p, const SequenceExtent& extent, int row) {
    return p.causal ? min(extent.keys, row + 1 + extent.ahead) : extent.keys;
}

template <class Shape>
__device__ __forceinline__ void load_queries(
    const SequenceProblem& p, const TensorMap& map, uint32_t to, uint32_t full, const SequenceTile& tile, int group) {
    const int query = tile.first_query + group * 64;
    const int first = p.all_queries - tile.queries + query, end = tile.query_start + tile.queries;
    if constexpr (Shape::kQueriesOnce) tma_load_5d(to, map, full, 0, tile.head, first, 0, end, policy_evict_first());
    else tma_load_5d(to, map, full, 0, tile.head, first, 0, end);
}

/// Where a tile's keys and values lie.
template <class Shape>
struct SequenceSource {
    int head, first, end;   // coordinates

    __device__ __forceinline__ SequenceSource(const SequenceProblem& p, const SequenceTile& tile)
        : head(tile.head / p.heads_per_key_head), first(p.all_keys - tile.keys), end(tile.key_start + tile.keys) {}

    __device__ __forceinline__ void load(const TensorMap& map, uint32_t to, uint32_t full, int step) const {
        tma_load_5d(to, map, full, 0, head, first + step * Shape::kKeys, 0, end);
    }
};

/// The tiles of one block: of all heads of all entries of the list the first that is left when it is ready for one.
template <class Shape>
struct SequenceWalk {
    int unit;
    unsigned fetched = 0;   // asked for early, since the answer takes a while

    __device__ __forceinline__ SequenceWalk() : unit(static_cast<int>(blockIdx.x)) {}
    __device__ __forceinline__ bool more(const SequenceProblem& p) const { return unit < p.plan->count * p.group_heads; }
    __device__ __forceinline__ void fetch(const SequenceProblem& p) { fetched = fetch_add(&p.plan->taken, 1u); }
    __device__ __forceinline__ void next(const SequenceProblem&) {
        unit = static_cast<int>(gridDim.x) + static_cast<int>(fetched);
    }
    __device__ __forceinline__ SequenceTile tile(const SequenceProblem& p) const {
        const VarlenTile entry = p.plan->tiles[unit / p.group_heads];
        return {entry.first_head + unit % p.group_heads, entry.first_row, entry.steps, entry.query_start,
                entry.queries, entry.key_start, entry.keys, 0};
    }
};

struct SequenceWork {
    static constexpr int kProducerRegisters = 40;   // a tile is more to know; leaves 232 to two consumers
    static __device__ __forceinline__ const SequenceTile& kept(const SequenceTile&, const SequenceTile& announced) {
        return announced;
    }

    using Problem = SequenceProblem;
    using Tile = SequenceTile;
    template <class Shape>
    using Source = SequenceSource<Shape>;
    template <class Shape>
    using Walk = SequenceWalk<Shape>;
};

/// As for sequences of one length (tile/wgmma_flash_softmax.h); `query` is the first of this thread's two rows.
__device__ __forceinline__ void finish_rows(
    const SequenceProblem& p, const SequenceTile& tile, int query, SoftmaxRow (&rows)[2], float (&factors)[2], int lane) {
    float logs[2];
    end_rows(rows, factors, logs, p.scale);
    if (lane % 4 == 0) {
        float* const to = p.lse + static_cast<size_t>(tile.head) * p.all_queries + tile.query_start + query;
        if (query < tile.queries) to[0] = logs[0];
        if (query + 8 < tile.queries) to[8] = logs[1];
    }
}

template <class Shape>
__device__ __forceinline__ void store_rows(
    const SequenceProblem& p, const SequenceTile& tile, int query, const float (&out)[Shape::kHeadDim / 2],
    const float (&factors)[2], int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = query + 8 * half;
        const size_t position = (static_cast<size_t>(tile.query_start) + row) * p.heads + tile.head;
        store_row<Shape>(p.o + position * (Shape::kHeadDim * 2), row < tile.queries, out, factors[half], half, lane);
    }
}
