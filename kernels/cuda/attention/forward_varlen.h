// SPDX-License-Identifier: MIT
// The Hopper attention forward over packed sequences: its tile scheduler and its launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attention/forward.h"
#include "attention/varlen.h"
#include "common/tensor_map.h"

namespace attention {

// The Hopper attention forward's tiles for packed sequences of different lengths: another FlashSchedule for the same producers and
// consumers (attention/forward.h). Tiles come from a list that a kernel before made on the device (attention/varlen.h); blocks
// take the next one by a count when they are ready for it.

/// What the kernel needs beside the tensor maps.
struct SequenceProblem {
    uint8_t* o;  // [queries, heads, head_dim]
    float* lse;  // [heads, queries]
    int heads, heads_per_key_head;
    int group_heads;  // heads that an entry of the list is for
    bool causal;
    float scale;                // softmax_scale * log2(e)
    int all_queries, all_keys;  // positions of the tensors
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

/// The tiles of one block: of all heads of all entries of the list the first that is left when it is ready for one.
template <class Shape>
struct SequenceScheduler {
    int unit;
    unsigned fetched = 0;  // asked for before it is needed, since the answer takes a while

    __device__ __forceinline__ SequenceScheduler() : unit(static_cast<int>(blockIdx.x)) {}
    __device__ __forceinline__ bool more(const SequenceProblem& p) const {
        return unit < p.plan->count * p.group_heads;
    }
    __device__ __forceinline__ void fetch(const SequenceProblem& p) { fetched = fetch_add(&p.plan->taken, 1u); }
    __device__ __forceinline__ void next(const SequenceProblem&) {
        unit = static_cast<int>(gridDim.x) + static_cast<int>(fetched);
    }
    __device__ __forceinline__ SequenceTile tile(const SequenceProblem& p) const {
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
    if (error == 0) {
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
    p.plan = batch.plan;
    const int blocks = static_cast<int>(std::min<long long>(most * a.heads_q, to.multiprocessors));
    return launch_cluster(
        wgmma_flash<Shape>, blocks, Shape::kThreads, 1, Shape::kSharedBytes, EARLY_START != 0, to.queue, query_map,
        key_map, value_map, p);
}

}  // namespace attention
