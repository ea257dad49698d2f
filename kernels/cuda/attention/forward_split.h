// SPDX-License-Identifier: MIT
// The Hopper attention forward's tiles for few queries: another FlashSchedule for the same producers and consumers
// (attention/forward.h). Heads that read the same keys share a tile, and keys are cut into parts.
//
// The 64 rows of a warpgroup are the pairs of a query and one of `group` heads, the heads of a query one after the other, for as
// many queries as fit: 9 of 7 heads. The rows that are left over hold zeros and belong to nobody. Rows are counted with them, so
// that 64 rows begin at row 0, 64, ... Where keys are cut, each part of them leaves a normalised fp32 output and its LSE in the
// workspace (kernels/common/split_kv.h), which a second kernel merges.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "attention/forward.h"
#include "common/combine_splits.h"
#include "common/tensor_map.h"
#include "split_kv.h"

namespace attention {

/// How the 64 rows of a warpgroup are shared by `group` heads.
struct PackedRows {
    int group, each;  // heads, and queries in 64 rows
    int inverse;      // of group, times 4096 and rounded up: exact for rows below 64

    PackedRows() = default;
    explicit PackedRows(int heads) : group(heads), each(64 / heads), inverse(ceil_div(4096, heads)) {}
    __host__ __device__ __forceinline__ int used() const { return each * group; }
    /// Of a row, counted with those that are left over; the first one's query for those.
    __device__ __forceinline__ int query(int row) const { return row / 64 * each + (row % 64 * inverse >> 12); }
    __device__ __forceinline__ int head(int row) const { return row % 64 - (row % 64 * inverse >> 12) * group; }
};

/// What the kernel needs beside the tensor maps.
struct SplitProblem {
    uint8_t* o;  // [batch, queries, heads, head_dim]
    float* lse;  // [batch, heads, queries]
    int queries, keys, heads, heads_per_key_head;
    PackedRows rows;
    bool causal;
    float scale;                // softmax_scale * log2(e)
    int all_queries, all_keys;  // of all batches
    int tiles;                  // of as many heads as share one
    int units;                  // parts of tiles, in all
    int splits;
    SplitWorkspace parts;  // where splits > 1
};

/// One part of a tile: the first of its heads and rows, and its steps of keys from first_step on.
struct alignas(16) SplitTile {
    int head, first_query, steps, batch;
    int first_step, part, unused[2];
};

/// Steps of keys of this part that `rows` rows from `row` on see, multiples of 64.
template <class Shape>
__device__ __forceinline__ int flash_steps(const SplitProblem& p, const SplitTile& tile, int row, int rows) {
    const int first = (tile.first_query + row) / 64;
    if (first * p.rows.each >= p.queries) return 0;
    const int end = min((first + rows / 64) * p.rows.each, p.queries);
    const int seen = p.causal ? min(p.keys, end + p.keys - p.queries) : p.keys;
    return seen <= 0 ? 0 : max(0, min(tile.steps, ceil_div(seen, Shape::kKeys) - tile.first_step));
}

/// Whether a warpgroup's rows, which begin at `row`, have queries. Else none are loaded (common/tensor_map.h).
__device__ __forceinline__ bool flash_has_rows(const SplitProblem& p, const SplitTile& tile, int row) {
    return (tile.first_query + row) / 64 * p.rows.each < p.queries;
}

struct SplitExtent {
    int first_step;
    __device__ __forceinline__ SplitExtent(const SplitProblem&, const SplitTile& tile) : first_step(tile.first_step) {}
    __device__ __forceinline__ int seen(const SplitProblem& p, int row) const {
        return p.causal ? min(p.keys, p.rows.query(row) + 1 + p.keys - p.queries) : p.keys;
    }
};

/// Bytes of a warpgroup's queries: those of rows that are used.
template <class Shape>
__device__ __forceinline__ int query_bytes(const SplitProblem& p) {
    return p.rows.used() * Shape::kHeadDim * 2;
}

/// 64 columns at a time, whose rows begin where a swizzle pattern does.
template <class Shape>
__device__ __forceinline__ void load_queries(
    const SplitProblem& p, const TensorMap& map, uint32_t to, uint32_t full, const SplitTile& tile, int group) {
    const int query = (tile.first_query + group * 64) / 64 * p.rows.each;
#pragma unroll
    for (int panel = 0; panel < Shape::kHeadDim / 64; ++panel) {
        tma_load_5d(
            to + panel * Shape::kQueryPitch, map, full, 0, tile.head, p.all_queries - p.queries + query, panel,
            (tile.batch + 1) * p.queries);
    }
}

/// Set the rows that are left over to zero, in all places for queries. All threads, before any product.
template <class Shape>
__device__ __forceinline__ void clear_queries(const FlashMemory<Shape>&, const SplitProblem& p) {
    const int left = 64 - p.rows.used();
    if (left == 0) return;
    constexpr int kPanels = Shape::kQuerySlots * (Shape::kHeadDim / 64);
    for (int at = static_cast<int>(threadIdx.x); at < kPanels * left * 8; at += Shape::kThreads) {
        const int panel = at / (left * 8), row = 64 - left + at / 8 % left;
        *reinterpret_cast<uint4*>(swizzled_shared() + panel * Shape::kQueryPitch + row * 128 + at % 8 * 16) = uint4{};
    }
    fence_async_shared();
}

/// Where a part's keys and values lie.
template <class Shape>
struct SplitSource {
    int head, first, end;  // coordinates

    __device__ __forceinline__ SplitSource(const SplitProblem& p, const SplitTile& tile)
        : head(tile.head / p.heads_per_key_head), first(p.all_keys - p.keys + tile.first_step * Shape::kKeys),
          end((tile.batch + 1) * p.keys) {}

    __device__ __forceinline__ void load(const TensorMap& map, uint32_t to, uint32_t full, int step) const {
        tma_load_5d(to, map, full, 0, head, first + step * Shape::kKeys, 0, end);
    }
};

/// Parts in turn, so that neighbours read the same keys. Tiles of a mask that are not cut come by their length, the longest first,
/// and blocks take them there and back: who has the longest of one round has the shortest of the next.
template <class Shape>
struct SplitScheduler {
    int unit, round = 0;

    __device__ __forceinline__ explicit SplitScheduler(const SplitProblem&) : unit(static_cast<int>(blockIdx.x)) {}
    static __device__ __forceinline__ bool by_length(const SplitProblem& p) { return p.causal && p.splits == 1; }
    __device__ __forceinline__ bool more(const SplitProblem& p) const { return unit < p.units; }
    __device__ __forceinline__ void fetch(const SplitProblem&) {}
    __device__ __forceinline__ void next(const SplitProblem& p) {
        const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
        ++round;
        unit = round * blocks + (by_length(p) && round % 2 != 0 ? blocks - 1 - block : block);
    }
    __device__ __forceinline__ SplitTile tile(const SplitProblem& p) const {
        const int heads = p.heads / p.rows.group;
        SplitTile t{};
        int index;
        if (by_length(p)) {
            const int shared = p.units / p.tiles, rest = unit % shared;
            index = p.tiles - 1 - unit / shared;
            t.head = rest % heads * p.rows.group;
            t.batch = rest / heads;
        } else {
            const int in_part = heads * p.tiles, within = unit % in_part, rest = unit / in_part;
            index = within / heads;
            t.head = within % heads * p.rows.group;
            t.part = rest % p.splits;
            t.batch = rest / p.splits;
        }
        t.first_query = index * Shape::kQueries;
        t.steps = ceil_div(p.keys, Shape::kKeys);
        const int steps = flash_steps<Shape>(p, t, 0, Shape::kQueries);
        const KvRange range = kv_range(steps, ceil_div(steps, p.splits), t.part);
        t.first_step = range.begin;
        t.steps = range.end - range.begin;
        return t;
    }
};

struct SplitSchedule {
    static constexpr int kProducerRegisters = 40;
    static __device__ __forceinline__ const SplitTile& kept(const SplitTile&, const SplitTile& announced) {
        return announced;
    }

    using Problem = SplitProblem;
    using Tile = SplitTile;
    using Extent = SplitExtent;
    template <class Shape>
    using Source = SplitSource<Shape>;
    template <class Shape>
    using Scheduler = SplitScheduler<Shape>;
    template <class Shape>
    static __device__ __forceinline__ void prepare(const SplitProblem&) {}
};

/// Where a row of a tile, a pair of a query and a head, lies in the output.
struct SplitRow {
    int query, head;
    bool valid;
    size_t position;  // as a row of [batch, queries, heads]

    __device__ __forceinline__ SplitRow(const SplitProblem& p, const SplitTile& tile, int row)
        : query(p.rows.query(row)), head(tile.head + p.rows.head(row)),
          valid(row % 64 < p.rows.used() && query < p.queries),
          position((static_cast<size_t>(tile.batch) * p.queries + query) * p.heads + head) {}
    __device__ __forceinline__ size_t lse(const SplitProblem& p, const SplitTile& tile) const {
        return (static_cast<size_t>(tile.batch) * p.heads + head) * p.queries + query;
    }
};

/// As for whole tiles (attention/forward_softmax.h); `query` is the first of this thread's two rows.
__device__ __forceinline__ void finish_rows(
    const SplitProblem& p, const SplitTile& tile, int query, SoftmaxRow (&rows)[2], float (&factors)[2], int lane) {
    float logs[2];
    end_rows(rows, factors, logs, p.scale);
    const size_t part = static_cast<size_t>(tile.part) * p.all_queries * p.heads;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const SplitRow row(p, tile, query + 8 * half);
        if (!row.valid || lane % 4 != 0) continue;
        if (p.splits > 1) p.parts.lse[part + row.position] = logs[half];
        else p.lse[row.lse(p, tile)] = logs[half];
    }
}

template <class Shape>
__device__ __forceinline__ void store_rows(
    const SplitProblem& p, const SplitTile& tile, int query, const float (&out)[Shape::kHeadDim / 2],
    const float (&factors)[2], int lane) {
    const size_t part = static_cast<size_t>(tile.part) * p.all_queries * p.heads;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const SplitRow row(p, tile, query + 8 * half);
        if (p.splits == 1) {
            store_row<Shape>(p.o + row.position * (Shape::kHeadDim * 2), row.valid, out, factors[half], half, lane);
        } else if (row.valid && tile.steps > 0) {  // else its LSE says that nobody reads it
            float* const to = p.parts.o + (part + row.position) * Shape::kHeadDim + lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < Shape::kHeadDim / 8; ++i) {
                const float* const pair = out + 4 * i + 2 * half;
                *reinterpret_cast<float2*>(to + 8 * i) = make_float2(pair[0] * factors[half], pair[1] * factors[half]);
            }
        }
    }
}

/// The merge, which may start before the parts are there.
template <typename Element, int kColumns>
__global__ void __launch_bounds__(kCombineWarps * 32)
    combine_split(const __grid_constant__ CombineArguments<UniformSplits> a) {
    combine_block<Element, kColumns>(a, [] {
        grid_dependency_wait();
        grid_dependency_release();
    });
}

constexpr SplitCost kSplitCost = {2.0, 3.0, 0.1};  // in steps of 128 keys

/// The heads that share a tile of 128 rows if queries are few: as few as fill it, or all that read the same keys.
inline int heads_that_fill(const ForwardArguments& a) {
    const int shared = a.heads_q / a.heads_k;
    int most = 1;
    for (int heads = 1; heads <= std::min(shared, 64); ++heads) {
        if (shared % heads != 0) continue;
        most = heads;
        if (a.seqlen_q * heads >= 128) break;
    }
    return most;
}

/// Tiles of 128 rows that `heads` heads share, of all batches.
inline long long packed_tiles(const ForwardArguments& a, int heads) {
    return static_cast<long long>(a.batch) * (a.heads_q / heads) * ceil_div(ceil_div(a.seqlen_q, 64 / heads), 2);
}

/// The heads that share tiles of 128 rows if tiles shall be few; 1 if sharing saves nothing.
inline int heads_for_fewest_tiles(const ForwardArguments& a) {
    const int shared = a.heads_q / a.heads_k;
    int best = 1;
    for (int heads = 2; heads <= std::min(shared, 64); ++heads) {
        if (shared % heads == 0 && packed_tiles(a, heads) < packed_tiles(a, best)) best = heads;
    }
    return best;
}

/// Whether pairs of a long and a short tile of 128 rows are so few that blocks with one more than others leave at least one
/// `part`-th of all blocks' time unused.
inline bool pairs_idle(const ForwardArguments& a, int multiprocessors, int part) {
    const long long heads = static_cast<long long>(a.batch) * a.heads_q, tiles = ceil_div(a.seqlen_q, 128);
    const long long rounds = ceil_div(heads * ceil_div(tiles, 2LL), static_cast<long long>(multiprocessors));
    const long long most = rounds * (tiles + 1) * multiprocessors, used = heads * tiles * (tiles + 1) / 2;
    return part * (most - used) >= most;
}

/// What tiles of `rows` queries and steps of `keys` keys cost, as measured on an H200 (benchmarks/flash_attention.md): microseconds
/// for 128 x 128 scores and, beside them, for a tile.
struct TileCost {
    int rows, keys;
    double scores, tile;
};

/// Microseconds until the last of a launch's tiles is done, if they come by their length to whoever is free first.
inline double predicted_microseconds(const ForwardArguments& a, const TileCost& cost, int multiprocessors) {
    const long long heads = static_cast<long long>(a.batch) * a.heads_q, tiles = ceil_div(a.seqlen_q, cost.rows);
    // Steps of the tile that has so many longer ones.
    const auto steps = [&](long long longer) -> long long {
        const long long end = std::min<long long>(a.seqlen_q, (tiles - longer) * cost.rows);
        const long long seen = a.causal ? std::max(0LL, end + a.seqlen_k - a.seqlen_q) : a.seqlen_k;
        return ceil_div(seen, static_cast<long long>(cost.keys));
    };
    double rounds = static_cast<double>(heads * tiles) / multiprocessors, most = static_cast<double>(steps(0));
    if (a.causal) {
        long long sum = 0;
        for (long long longer = 0; longer < tiles; ++longer) sum += steps(longer);
        if (rounds > 1) {  // one has two tiles
            const long long two = steps((multiprocessors - 1) / heads) + steps(multiprocessors / heads);
            most = std::max(most, static_cast<double>(two));
        }
        most = std::max(most, static_cast<double>(heads * sum) / multiprocessors);
    } else {
        rounds = std::ceil(rounds);
        most *= rounds;
    }
    return most * cost.rows * cost.keys / (128 * 128) * cost.scores + rounds * cost.tile;
}

/// Attention, `heads` heads to a tile, and, where keys are split, as many times as the workspace allows, merge.
template <class Shape>
int launch_flash_split(const ForwardArguments& a, int heads, const FlashLaunch& to) {
    SplitProblem p{};
    p.o = a.o;
    p.lse = a.lse;
    p.queries = a.seqlen_q;
    p.keys = a.seqlen_k;
    p.heads = a.heads_q;
    p.heads_per_key_head = a.heads_q / a.heads_k;
    p.rows = PackedRows(heads);
    p.causal = a.causal;
    p.scale = a.scale;
    p.tiles = ceil_div(ceil_div(a.seqlen_q, p.rows.each) * 64, Shape::kQueries);
    const long long all_queries = static_cast<long long>(a.batch) * a.seqlen_q;
    const long long all_keys = static_cast<long long>(a.batch) * a.seqlen_k, rows = all_queries * a.heads_q;
    const long long tiles = static_cast<long long>(a.batch) * (a.heads_q / heads) * p.tiles;
    p.splits = choose_splits(
        tiles, ceil_div(a.seqlen_k, Shape::kKeys), to.multiprocessors,
        SplitWorkspace::capacity(to.workspace_bytes, rows, Shape::kHeadDim), kSplitCost);
    if (all_queries > 0x7fffffffLL || all_keys > 0x7fffffffLL || tiles * p.splits > 0x7fffffffLL)
        return kUnsupportedShape;
    p.all_queries = static_cast<int>(all_queries);
    p.all_keys = static_cast<int>(all_keys);
    p.units = static_cast<int>(tiles * p.splits);
    if (p.splits > 1) p.parts = SplitWorkspace::at(to.workspace, p.splits, rows, Shape::kHeadDim);

    const SequenceTensor queries = {a.q, p.all_queries, a.heads_q, Shape::kHeadDim};
    const SequenceTensor keys = {a.k, p.all_keys, a.heads_k, Shape::kHeadDim};
    const SequenceTensor values = {a.v, p.all_keys, a.heads_k, Shape::kHeadDim};
    TensorMap query_map, key_map, value_map;
    int error = encode_sequence_tensor_map(&query_map, queries, p.rows.each, heads, 1);
    if (error == 0) error = encode_sequence_tensor_map(&key_map, keys, Shape::kKeys, 1);
    if (error == 0) error = encode_sequence_tensor_map(&value_map, values, Shape::kKeys, 1);
    if (error == 0) {
        error = launch_cluster(
            wgmma_flash<Shape>, std::min(p.units, to.multiprocessors), Shape::kThreads, 1, Shape::kSharedBytes,
            EARLY_START != 0, to.queue, query_map, key_map, value_map, p);
    }
    if (error != 0 || p.splits == 1) return error;
    CombineArguments<UniformSplits> merge = {{p.splits, rows}, p.parts, a.o, a.lse, rows, a.seqlen_q, a.heads_q, 1};
    const int blocks = share_segments<Shape::kHeadDim>(merge, p.splits);
    return launch_cluster(
        combine_split<typename Shape::Element, Shape::kHeadDim>, blocks, kCombineWarps * 32, 1, 0, EARLY_START != 0,
        to.queue, merge);
}

}  // namespace attention
