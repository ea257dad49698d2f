// SPDX-License-Identifier: MIT
// The Hopper attention forward's tiles for sequences of different lengths, for grouped heads that share a tile, and for keys
// that are split: another FlashWork for the same producers and consumers (tile/wgmma_flash.h).
//
// A tile's rows are the pairs of a query and one of 2^pack heads which read the same keys, the heads of a query one after the
// other. Tiles come from a list (tile/varlen_plan.h) or, where all sequences have one length, are counted out: then keys may be
// cut into parts, each of which leaves a normalised fp32 output and its LSE in the workspace (kernels/common/split_kv.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "split_kv.h"
#include "tile/varlen_plan.h"
#include "tile/wgmma_flash.h"

/// What the kernel needs beside the tensor maps. kListed: tiles come from a list; kSplit: their keys may be cut into parts.
template <bool kListed, bool kSplit>
struct SequenceProblem {
    uint8_t* o;   // [.., heads, head_dim]
    float* lse;   // [heads, all queries] with a list, else [batch, heads, queries]
    int heads, heads_per_key_head, pack;
    bool causal;
    float scale;                     // softmax_scale * log2(e)
    int all_queries, all_keys;       // positions of the tensors
    VarlenPlan* plan;                // the list; else sequences of one length, and
    int queries, keys;               //   their lengths
    int tiles, units;                //   tiles of a head, and parts of tiles in all
    int splits, steps_per_split;     // parts of a tile, at most; with a list, how many steps of keys make one
    SplitWorkspace parts;            // where splits > 1
};

struct alignas(16) SequenceTile {
    int head, first_query, steps;    // the first of the heads, the first row, as in FlashTile
    int first_step, part;            // of the keys, where they are split
    int query_start, queries, key_start, keys;
};

/// Steps of keys of this tile that `rows` rows from `row` on see, counted from the tile's first one.
template <class Shape, bool kListed, bool kSplit>
__device__ __forceinline__ int flash_steps(const SequenceProblem<kListed, kSplit>& p, const SequenceTile& tile, int row, int rows) {
    const int first = tile.first_query + row, end = min(first + rows, tile.queries << p.pack);
    if (first >= end) return 0;
    const int seen = p.causal ? min(tile.keys, ((end - 1) >> p.pack) + 1 + tile.keys - tile.queries) : tile.keys;
    return seen <= 0 ? 0 : max(0, min(tile.steps, ceil_div(seen, Shape::kKeys) - tile.first_step));
}

struct SequenceExtent {
    int first_step, keys, ahead;     // ahead: keys that the first query of the sequence sees beside its own, if there is a mask
};
template <bool kListed, bool kSplit>
__device__ __forceinline__ SequenceExtent flash_extent(const SequenceProblem<kListed, kSplit>&, const SequenceTile& tile) {
    return {kSplit ? tile.first_step : 0, tile.keys, tile.keys - tile.queries};
}
template <bool kListed, bool kSplit>
__device__ __forceinline__ int flash_seen(const SequenceProblem<kListed, kSplit>& p, const SequenceExtent& extent, int row) {
    return p.causal ? min(extent.keys, (row >> p.pack) + 1 + extent.ahead) : extent.keys;
}

template <class Shape, bool kListed, bool kSplit>
__device__ __forceinline__ void load_queries(
    const SequenceProblem<kListed, kSplit>& p, const TensorMap& map, uint32_t to, uint32_t full, const SequenceTile& tile, int group) {
    const int query = (tile.first_query + group * 64) >> p.pack;
    tma_load_5d(
        to, map, full, 0, tile.head, p.all_queries - tile.queries + query, 0, tile.query_start + tile.queries);
}

/// Where a tile's keys and values lie.
template <class Shape>
struct SequenceSource {
    int head, first, end;   // coordinates

    __device__ __forceinline__ SequenceSource(const typename Shape::Problem& p, const SequenceTile& tile)
        : head(tile.head / p.heads_per_key_head),
          first(p.all_keys - tile.keys + tile.first_step * Shape::kKeys), end(tile.key_start + tile.keys) {}

    __device__ __forceinline__ void load(const TensorMap& map, uint32_t to, uint32_t full, int step) const {
        tma_load_5d(to, map, full, 0, head, first + step * Shape::kKeys, 0, end);
    }
};

/// The tiles of one block. From a list it takes the longest left when it is ready for one, else every gridDim.x-th.
template <class Shape, bool kListed, bool kSplit>
struct SequenceWalk {
    using Problem = SequenceProblem<kListed, kSplit>;
    int unit;
    unsigned fetched = 0;

    __device__ __forceinline__ SequenceWalk() : unit(static_cast<int>(blockIdx.x)) {}
    __device__ __forceinline__ bool more(const Problem& p) const {
        return unit < (kListed ? p.plan->count * (p.heads >> p.pack) * (kSplit ? p.splits : 1) : p.units);
    }
    __device__ __forceinline__ void fetch(const Problem& p) {
        if constexpr (kListed) fetched = fetch_add(&p.plan->taken, 1u);
    }
    __device__ __forceinline__ void next(const Problem& p) {
        const int blocks = static_cast<int>(gridDim.x);
        unit = kListed ? blocks + static_cast<int>(fetched) : unit + blocks;
    }
    __device__ __forceinline__ SequenceTile tile(const Problem& p) const {
        SequenceTile t{};
        const int heads = p.heads >> p.pack;
        if constexpr (kListed) {
            const int units = p.plan->count * heads, within = kSplit ? unit % units : unit;
            const VarlenTile entry = p.plan->tiles[within / heads];
            t.head = within % heads << p.pack;
            t.first_query = entry.first_row;
            t.steps = entry.steps;
            if constexpr (kSplit) {
                t.part = unit / units;   // first parts first: short tiles have no others
                const KvRange range = kv_range(entry.steps, p.steps_per_split, t.part);
                t.first_step = range.begin;
                t.steps = range.end - range.begin;
            }
            t.query_start = entry.query_start;
            t.queries = entry.queries;
            t.key_start = entry.key_start;
            t.keys = entry.keys;
        } else {
            const int tile = unit / p.splits, head = tile / p.tiles, batch = head / heads;
            t.part = unit % p.splits;
            t.head = head % heads << p.pack;
            t.first_query = tile % p.tiles * Shape::kQueries;
            t.query_start = batch * p.queries;
            t.queries = p.queries;
            t.key_start = batch * p.keys;
            t.keys = p.keys;
            t.steps = ceil_div(p.keys, Shape::kKeys);
            const int steps = flash_steps<Shape>(p, t, 0, Shape::kQueries);
            const KvRange range = kv_range(steps, ceil_div(steps, p.splits), t.part);
            t.first_step = range.begin;
            t.steps = range.end - range.begin;
        }
        return t;
    }
};

template <bool kListed, bool kSplit>
struct SequenceWork {
    static constexpr int kProducerRegisters = 40;   // a tile is more to know; leaves 232 to two consumers
    static __device__ __forceinline__ const SequenceTile& kept(const SequenceTile&, const SequenceTile& announced) {
        return announced;
    }

    using Problem = SequenceProblem<kListed, kSplit>;
    using Tile = SequenceTile;
    template <class Shape>
    using Source = SequenceSource<Shape>;
    template <class Shape>
    using Walk = SequenceWalk<Shape, kListed, kSplit>;
};

/// Where row `row` of a tile's sequence, a pair of a query and a head, lies in the output.
struct SequenceRow {
    size_t position, lse;   // row of [.., heads] in q and o, and place in lse
    bool valid;

    template <bool kListed, bool kSplit>
    __device__ __forceinline__ SequenceRow(const SequenceProblem<kListed, kSplit>& p, const SequenceTile& tile, int row) {
        const int query = row >> p.pack, head = tile.head + (row & ((1 << p.pack) - 1));
        const auto start = static_cast<size_t>(tile.query_start);
        position = (start + query) * p.heads + head;
        lse = kListed ? static_cast<size_t>(head) * p.all_queries + start + query
                      : start * p.heads + static_cast<size_t>(head) * p.queries + query;
        valid = query < tile.queries;
    }
};

/// As for sequences of one length (tile/wgmma_flash_softmax.h); `query` is the first of this thread's two rows.
template <bool kListed, bool kSplit>
__device__ __forceinline__ void finish_rows(
    const SequenceProblem<kListed, kSplit>& p, const SequenceTile& tile, int query, SoftmaxRow (&rows)[2], float (&factors)[2], int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        rows[half].sum = quad_sum(rows[half].sum);
        factors[half] = rows[half].inverse();
        const SequenceRow row(p, tile, query + 8 * half);
        if (row.valid && lane % 4 == 0) {
            const size_t part = static_cast<size_t>(tile.part) * p.all_queries * p.heads;
            float& lse = kSplit && p.splits > 1 ? p.parts.lse[part + row.position] : p.lse[row.lse];
            lse = rows[half].lse(p.scale);
        }
    }
}

template <class Shape, bool kListed, bool kSplit>
__device__ __forceinline__ void store_rows(
    const SequenceProblem<kListed, kSplit>& p, const SequenceTile& tile, int query, const float (&out)[Shape::kHeadDim / 2],
    const float (&factors)[2], int lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const SequenceRow row(p, tile, query + 8 * half);
        if (kSplit && p.splits > 1) {
            if (tile.steps == 0) continue;   // its LSE says that nobody reads it
            const size_t part = static_cast<size_t>(tile.part) * p.all_queries * p.heads;
            float* const to = p.parts.o + (part + row.position) * Shape::kHeadDim + lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < Shape::kHeadDim / 8; ++i) {
                const float* const pair = out + 4 * i + 2 * half;
                const float2 value = make_float2(pair[0] * factors[half], pair[1] * factors[half]);
                if (row.valid) *reinterpret_cast<float2*>(to + 8 * i) = value;
            }
            continue;
        }
        store_row<Shape>(p.o + row.position * (Shape::kHeadDim * 2), row.valid, out, factors[half], half, lane);
    }
}
