// SPDX-License-Identifier: MIT
// The Hopper attention forward over packed sequences: its tile scheduler and its launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attention/forward.h"
#include "attention/varlen.h"
#include "common/tensor_map.h"
#include "ptx/thread.h"

#ifndef SHARE_TILES
#error "SHARE_TILES is a tunable of the kernel file: up to how many tiles a block works out itself"
#endif

namespace attention {

// The Hopper attention forward's tiles for packed sequences of different lengths: another FlashSchedule for the same producers and
// consumers (attention/forward.h). Tiles come from a list that a kernel before made on the device (attention/varlen.h); blocks
// take the next one by a count when they are ready for it. Where sequences and tiles are few, that kernel would take as long as
// some tiles: there each block works out its own share.

/// What the kernel needs beside the tensor maps.
struct SequenceProblem {
    uint8_t* o;  // [queries, heads, head_dim]
    float* lse;  // [heads, queries]
    int heads, heads_per_key_head;
    int group_heads;  // heads that an entry of the list is for
    bool causal;
    float scale;                // softmax_scale * log2(e)
    int all_queries, all_keys;  // positions of the tensors
    VarlenPlan* plan;           // null: each block has its share
    const int *query_starts, *key_starts;
    int batch;
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

/// Whether a warpgroup's rows, which begin at `row`, have queries. Else none are loaded (common/tensor_map.h).
__device__ __forceinline__ bool flash_has_rows(const SequenceProblem&, const SequenceTile& tile, int row) {
    return tile.first_query + row < tile.queries;
}

struct SequenceExtent {
    static constexpr int first_step = 0;
    int keys, ahead;  // ahead: keys that the sequence's first query sees beside its own, if there is a mask
    __device__ __forceinline__ SequenceExtent(const SequenceProblem&, const SequenceTile& tile)
        : keys(tile.keys), ahead(tile.keys - tile.queries) {}
    __device__ __forceinline__ int seen(const SequenceProblem& p, int row) const {
        return p.causal ? min(keys, row + 1 + ahead) : keys;
    }
};

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
    int head, first, end;  // coordinates

    __device__ __forceinline__ SequenceSource(const SequenceProblem& p, const SequenceTile& tile)
        : head(tile.head / p.heads_per_key_head), first(p.all_keys - tile.keys), end(tile.key_start + tile.keys) {}

    __device__ __forceinline__ void load(const TensorMap& map, uint32_t to, uint32_t full, int step) const {
        tma_load_5d(to, map, full, 0, head, first + step * Shape::kKeys, 0, end);
    }
};

constexpr int kShareSequences = 32, kShareTiles = 7;  // a lane each; places for announced tiles, but one for the end

/// Announced tile `number` of this block, which find_share has filled in before.
template <class Shape>
__device__ __forceinline__ SequenceTile& share_tile(int number) {
    return FlashMemory<Shape>{0}.tile(Shape::kGroups, static_cast<unsigned>(number));
}

/// The block's share of all tiles, and a mark behind it. They are dealt out by the steps of keys they take, the longest first,
/// along the blocks and back again. One warp, with a sequence to a lane.
template <class Shape>
__device__ __forceinline__ void find_share(const SequenceProblem& p) {
    constexpr unsigned kAll = 0xffffffffu;
    const int lane = lane_index(), blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    SequenceTile tile{};
    if (lane < p.batch) {
        tile.query_start = p.query_starts[lane];
        tile.queries = p.query_starts[lane + 1] - tile.query_start;
        tile.key_start = p.key_starts[lane];
        tile.keys = p.key_starts[lane + 1] - tile.key_start;
    }
    const int tiles = ceil_div(tile.queries, Shape::kQueries);
    // With a mask a later tile takes no fewer steps. So those of at least `steps` are the last ones, this many of them.
    const auto tiles_of = [&](int steps) {
        const int keys = (steps - 1) * Shape::kKeys;  // more than these are to be seen
        if (steps <= 0 || tiles == 0) return tiles;
        if (tile.keys <= keys) return 0;
        const int queries = p.causal ? max(0, keys - (tile.keys - tile.queries)) : 0;  // that see no more than these
        return tiles - min(queries / Shape::kQueries, tiles - 1);
    };
    const int units = __reduce_add_sync(kAll, tiles) * p.heads;
    const int most = __reduce_max_sync(kAll, ceil_div(tile.keys, Shape::kKeys));
    int number = 0;
    for (;; ++number) {
        const int unit = (number + number % 2) * blocks + (number % 2 != 0 ? -1 - block : block);
        if (unit >= units) break;
        const int index = unit / p.heads;
        int least = 0, beyond = most + 1;  // more than `index` tiles are of at least the first, no more of the second
        while (beyond - least > 1) {
            const int between = (least + beyond) / 2;
            (static_cast<int>(__reduce_add_sync(kAll, tiles_of(between))) > index ? least : beyond) = between;
        }
        const int longer = tiles_of(beyond), same = tiles_of(least) - longer;
        const int before = sum_up_to(lane, same) - same;  // this lane's
        const int place = index - static_cast<int>(__reduce_add_sync(kAll, longer)) - before;
        if (place >= 0 && place < same) {
            tile.head = unit % p.heads;
            tile.first_query = (tiles - longer - 1 - place) * Shape::kQueries;
            tile.steps = least;
            share_tile<Shape>(number) = tile;
        }
    }
    if (lane == 0) share_tile<Shape>(number).steps = kFlashNoTile;
    __syncwarp();
}

/// The tiles of one block: its share or, of all heads of all entries of the list, the first that is left when it is ready for one.
template <class Shape>
struct SequenceScheduler {
    int unit;
    unsigned fetched = 0;  // asked for before it is needed, since the answer takes a while

    __device__ __forceinline__ explicit SequenceScheduler(const SequenceProblem& p)
        : unit(p.plan != nullptr ? static_cast<int>(blockIdx.x) : 0) {}
    __device__ __forceinline__ bool more(const SequenceProblem& p) const {
        if (p.plan == nullptr) return share_tile<Shape>(unit).steps != kFlashNoTile;
        return unit < p.plan->count * p.group_heads;
    }
    __device__ __forceinline__ void fetch(const SequenceProblem& p) {
        if (p.plan != nullptr) fetched = fetch_add(&p.plan->taken, 1u);
    }
    __device__ __forceinline__ void next(const SequenceProblem& p) {
        unit = p.plan != nullptr ? static_cast<int>(gridDim.x) + static_cast<int>(fetched) : unit + 1;
    }
    __device__ __forceinline__ SequenceTile tile(const SequenceProblem& p) const {
        if (p.plan == nullptr) return share_tile<Shape>(unit);
        const VarlenTile entry = p.plan->tiles[unit / p.group_heads];
        return {
            entry.first_head + unit % p.group_heads,
            entry.first_row,
            entry.steps,
            entry.query_start,
            entry.queries,
            entry.key_start,
            entry.keys,
            0};
    }
};

struct SequenceSchedule {
    static constexpr int kProducerRegisters = 40;  // a tile is more to know; leaves 232 to two consumers
    static __device__ __forceinline__ const SequenceTile& kept(const SequenceTile&, const SequenceTile& announced) {
        return announced;
    }

    using Problem = SequenceProblem;
    using Tile = SequenceTile;
    using Extent = SequenceExtent;
    template <class Shape>
    using Source = SequenceSource<Shape>;
    template <class Shape>
    using Scheduler = SequenceScheduler<Shape>;
    template <class Shape>
    static __device__ __forceinline__ void prepare(const SequenceProblem& p) {
        if (p.plan == nullptr) find_share<Shape>(p);
    }
};

/// As for sequences of one length (attention/forward_softmax.h); `query` is the first of this thread's two rows.
__device__ __forceinline__ void finish_rows(
    const SequenceProblem& p, const SequenceTile& tile, int query, SoftmaxRow (&rows)[2], float (&factors)[2],
    int lane) {
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

// Host side of the Hopper attention forward for packed sequences (attention/forward_varlen.h): list, tensor maps, launch.
//
// Which launch may overlap with which: with EARLY_START both kernels of a call may start while what is before them runs, and
// both wait for it to be complete before they touch global memory and before they let the next one start. So each one's wait
// covers all that came before: the next call's list is written when this call's attention, which reads list and count, has
// ended, also where both use one workspace.

__global__ void __launch_bounds__(kPlanThreads) plan_sequences(const __grid_constant__ VarlenBatch b) {
    grid_dependency_wait();
    grid_dependency_release();
    plan_tiles(b);
}

/// How many heads share an entry of the list: those whose keys and values, of the `longest` sequence, L2 holds; a divisor of all.
inline int heads_per_entry(const ForwardArguments& a, long long key_bytes, int longest) {
    const long long room = std::max(1LL, kFlashRoom / std::max(1LL, key_bytes * longest));
    int key_heads = static_cast<int>(std::min<long long>(a.heads_k, room));
    while (a.heads_k % key_heads != 0) --key_heads;
    return key_heads * (a.heads_q / a.heads_k);
}

/// Whether blocks find their tiles themselves: no block has many, and all keys and values stay in L2 in any order of tiles.
inline bool by_shares(const VarlenArguments& a, const VarlenBatch& batch, long long tiles, long long key_bytes) {
    return batch.batch <= kShareSequences && tiles <= std::min(SHARE_TILES, kShareTiles) &&
           key_bytes * a.seqlen_k * a.heads_k <= kFlashRoom;
}

/// List and attention, of sequences of up to `longest` keys. The workspace holds the list.
template <class Shape>
int launch_wgmma_sequences(const VarlenArguments& a, VarlenBatch batch, int longest, const FlashLaunch& to) {
    constexpr long long kKeyBytes = 4LL * Shape::kHeadDim;  // of one position in keys and values
    batch.pack = 0;
    batch.tile_rows = Shape::kQueries;
    batch.step_keys = Shape::kKeys;
    batch.plan = static_cast<VarlenPlan*>(to.workspace);
    const long long most = batch.most_tiles(a.total_queries);
    if (most * a.heads_q > 0x7fffffffLL) return kUnsupportedShape;
    if (to.workspace == nullptr || to.workspace_bytes < VarlenPlan::bytes(most)) return kWorkspaceTooSmall;
    batch.group_heads = heads_per_entry(a, kKeyBytes, longest);
    if (to.workspace_bytes < VarlenPlan::bytes(most * (a.heads_q / batch.group_heads))) batch.group_heads = a.heads_q;
    batch.head_groups = a.heads_q / batch.group_heads;
    const long long key_heads = std::max(1, batch.group_heads / (a.heads_q / a.heads_k));
    batch.section_keys = static_cast<int>(kFlashRoom / (kKeyBytes * key_heads));

    const SequenceTensor queries = {a.q, a.total_queries, a.heads_q, Shape::kHeadDim};
    const SequenceTensor keys = {a.k, a.seqlen_k, a.heads_k, Shape::kHeadDim};
    const SequenceTensor values = {a.v, a.seqlen_k, a.heads_k, Shape::kHeadDim};
    TensorMap query_map, key_map, value_map;
    int error = encode_sequence_tensor_map(&query_map, queries, 64, 1);
    if (error == 0) error = encode_sequence_tensor_map(&key_map, keys, Shape::kKeys, 1);
    if (error == 0) error = encode_sequence_tensor_map(&value_map, values, Shape::kKeys, 1);
    const int blocks = static_cast<int>(std::min<long long>(most * a.heads_q, to.multiprocessors));
    const bool shares = by_shares(a, batch, ceil_div<long long>(most * a.heads_q, blocks), kKeyBytes);
    if (error == 0 && !shares) {
        error =
            launch_cluster(plan_sequences, plan_blocks(most), kPlanThreads, 1, 0, EARLY_START != 0, to.queue, batch);
    }
    if (error != 0) return error;
    SequenceProblem p{};
    p.o = a.o;
    p.lse = a.lse;
    p.heads = a.heads_q;
    p.heads_per_key_head = a.heads_q / a.heads_k;
    p.group_heads = batch.group_heads;
    p.causal = a.causal;
    p.scale = a.scale;
    p.all_queries = a.total_queries;
    p.all_keys = a.seqlen_k;
    p.plan = shares ? nullptr : batch.plan;
    p.query_starts = batch.query_starts;
    p.key_starts = batch.key_starts;
    p.batch = batch.batch;
    return launch_cluster(
        wgmma_flash<Shape>, blocks, Shape::kThreads, 1, Shape::kSharedBytes, EARLY_START != 0, to.queue, query_map,
        key_map, value_map, p);
}

}  // namespace attention
