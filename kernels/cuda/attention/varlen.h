// SPDX-License-Identifier: MIT
// Attention over packed sequences: the list of tiles that a small kernel makes on the device, and the mma.sync forward that
// takes its tiles from it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/mma_sync_launch.h"
#include "ceil_div.h"
#include "launch.h"

namespace attention {

// Which tiles of queries a batch of sequences of different lengths has, the longest first: worked out on the device, where the
// lengths are, by a small kernel before the attention itself.
//
// A sequence's rows are its queries or, with pack, its pairs of a query and one of 2^pack heads that read the same keys, the
// heads of a query one after the other. A tile is up to tile_rows of them. The list is sorted by the steps of keys a tile
// takes, so that blocks which take one tile after the other end together; tiles of equal length stay in the order of sequences,
// whose keys their blocks then read at about the same time.
//
// With a mask tiles of one length are spread over all sequences, and what lies between a sequence's long and short tiles may be
// more than L2 holds. So a list can have sections: the longest sequences first, as many as have section_keys keys, each section
// once for every one of head_groups groups of heads, and only within those sorted by steps.

/// One tile: its sequence, the first of its rows, and how many steps of keys the last of them sees.
struct alignas(16) VarlenTile {
    int query_start, queries;  // the sequence's first row in q and o, and how many it has
    int key_start, keys;
    int first_row, steps;
    int first_head;  // of the group of heads this entry is for
    int unused;
};

/// What the planning kernel leaves in the workspace.
struct alignas(16) VarlenPlan {
    int count;       // of entries
    unsigned taken;  // pieces of work that blocks have taken beyond their first: 0
    int unused[6];
    VarlenTile tiles[1];

    static size_t bytes(long long tiles) { return static_cast<size_t>(tiles + 1) * sizeof(VarlenTile); }
};

struct VarlenBatch {
    const int *query_starts, *key_starts;  // [batch + 1]
    int batch, pack, tile_rows, step_keys;
    int head_groups, group_heads;  // a group's heads
    int section_keys;              // 0: no sections
    bool causal;
    VarlenPlan* plan;

    /// No batch with so many queries has more tiles.
    long long most_tiles(int total_queries) const {
        return batch + (static_cast<long long>(total_queries) << pack) / tile_rows;
    }
};

constexpr int kPlanThreads = 256;
constexpr int kPlanSorted = 2048;  // more tiles than that keep the order of sequences

/// Tile `number` of a sequence.
__device__ __forceinline__ VarlenTile varlen_tile(const VarlenBatch& b, int sequence, int number) {
    VarlenTile t{};
    t.query_start = b.query_starts[sequence];
    t.queries = b.query_starts[sequence + 1] - t.query_start;
    t.key_start = b.key_starts[sequence];
    t.keys = b.key_starts[sequence + 1] - t.key_start;
    t.first_row = number * b.tile_rows;
    const int last = (min(t.first_row + b.tile_rows, t.queries << b.pack) - 1) >> b.pack;
    const int seen = b.causal ? min(t.keys, last + 1 + t.keys - t.queries) : t.keys;
    t.steps = seen <= 0 ? 0 : ceil_div(seen, b.step_keys);
    return t;
}

/// Where a tile stands in the list: first by its section, then by its steps, the longest first.
struct PlanOrder {
    static constexpr int kStepBits = 19, kMostSteps = (1 << kStepBits) - 1, kSections = 1 << (31 - kStepBits);

    static __device__ __forceinline__ int key(int section, int steps) {
        return min(section, kSections - 1) << kStepBits | (kMostSteps - min(steps, kMostSteps));
    }
};

/// Any number of blocks of kPlanThreads, each of which counts all tiles and writes its share of the list.
__device__ __forceinline__ void plan_tiles(const VarlenBatch& b) {
    __shared__ int counts[kPlanThreads], keys[kPlanSorted], sequences[kPlanSorted], numbers[kPlanSorted];
    __shared__ int lengths[kPlanSorted];
    const int thread = static_cast<int>(threadIdx.x);
    const int each = ceil_div(b.batch, kPlanThreads);
    const int begin = min(b.batch, thread * each), end = min(b.batch, begin + each);
    const bool sections = b.section_keys > 0 && b.batch <= kPlanSorted;
    const auto tiles_of = [&](int sequence) {
        return ceil_div((b.query_starts[sequence + 1] - b.query_starts[sequence]) << b.pack, b.tile_rows);
    };
    int mine = 0;
    for (int s = begin; s < end; ++s) {
        mine += tiles_of(s);
        if (sections) lengths[s] = b.key_starts[s + 1] - b.key_starts[s];
    }
    counts[thread] = mine;
    __syncthreads();
    int at = 0, total = 0;  // before this thread's sequences, and in all
    for (int i = 0; i < kPlanThreads; ++i) {
        total += counts[i];
        at += i < thread ? counts[i] : 0;
    }
    const int first = static_cast<int>(blockIdx.x) * kPlanThreads + thread;
    if (first == 0) {
        b.plan->count = total * b.head_groups;
        b.plan->taken = 0;
    }
    const auto write = [&](int place, VarlenTile tile, int group) {
        tile.first_head = group * b.group_heads;
        b.plan->tiles[place] = tile;
    };
    const bool sorted = total <= kPlanSorted;
    for (int s = begin; s < end; ++s) {
        int longer = 0;  // keys of sequences that come before
        for (int other = 0; sections && other < b.batch; ++other) {
            longer += lengths[other] > lengths[s] || (lengths[other] == lengths[s] && other < s) ? lengths[other] : 0;
        }
        const int tiles = tiles_of(s), section = sections ? longer / b.section_keys : 0;
        for (int number = tiles - 1; number >= 0; --number, ++at) {  // with a mask the last ones are the longest
            const VarlenTile tile = varlen_tile(b, s, number);
            if (sorted) {
                keys[at] = PlanOrder::key(section, tile.steps);
                sequences[at] = s;
                numbers[at] = number;
            } else if (blockIdx.x == 0) {
                for (int group = 0; group < b.head_groups; ++group) write(at * b.head_groups + group, tile, group);
            }
        }
    }
    if (!sorted) return;
    __syncthreads();
    for (int i = first; i < total; i += static_cast<int>(gridDim.x) * kPlanThreads) {
        const int key = keys[i], begin_of_section = key & ~PlanOrder::kMostSteps;
        int place = 0, before = 0, beside = 0;  // among all tiles; tiles of sections before, and of this one
        for (int other = 0; other < total; ++other) {
            place += keys[other] < key || (keys[other] == key && other < i) ? 1 : 0;
            before += keys[other] < begin_of_section ? 1 : 0;
            beside += (keys[other] & ~PlanOrder::kMostSteps) == begin_of_section ? 1 : 0;
        }
        const VarlenTile tile = varlen_tile(b, sequences[i], numbers[i]);
        for (int group = 0; group < b.head_groups; ++group) {
            write(before * b.head_groups + group * beside + place - before, tile, group);
        }
    }
}

__global__ void __launch_bounds__(kPlanThreads) plan_varlen(const __grid_constant__ VarlenBatch b) { plan_tiles(b); }

/// How many blocks for `most` tiles.
inline int plan_blocks(long long most) {
    return static_cast<int>(most < kPlanSorted ? ceil_div<long long>(most, kPlanThreads) : kPlanSorted / kPlanThreads);
}

/// Launch the planning kernel with enough blocks for `most` tiles.
inline int launch_plan(const VarlenBatch& b, long long most, void* queue) {
    LAUNCH(plan_varlen, dim3(static_cast<unsigned>(plan_blocks(most))), dim3(kPlanThreads), 0, queue)(b);
    return LAUNCH_STATUS();
}

// The mma.sync attention forward (attention/mma_sync_forward.h) over packed sequences: a block takes one tile of the plan
// (attention/varlen.h) and one head, or nothing where the plan has fewer tiles than there could be.

/// Of the base q, k, v, o, lse, heads_q, heads_k, splits (1), pack, causal and scale are used.
struct VarlenArguments : ForwardArguments {
    const VarlenPlan* plan;
    int total_queries;
};

template <class Tile>
struct ListedTile : Tile {
    using Arguments = VarlenArguments;
};

template <typename Tile>
__device__ __forceinline__ ForwardPlace forward_place(const VarlenArguments& a) {
    int block = static_cast<int>(blockIdx.x);
    asm volatile("" : "+r"(block));  // as for sequences of one length
    const int pack = Tile::kPacked ? a.pack : 0, heads = a.heads_q >> pack;
    const int index = block / heads;
    ForwardPlace w{};
    if (index >= a.plan->count) return w;
    const VarlenTile tile = a.plan->tiles[index];
    w.head = block % heads << pack;
    w.first_row = tile.first_row;
    w.rows = min(Tile::kQueries, (tile.queries << pack) - tile.first_row);
    w.queries = tile.queries;
    w.keys = tile.keys;
    w.query_start = static_cast<size_t>(tile.query_start);
    w.key_start = static_cast<size_t>(tile.key_start);
    w.lse_start = static_cast<size_t>(w.head) * a.total_queries + tile.query_start;
    w.lse_pitch = a.total_queries;
    return w;
}

/// The arguments of kernel.h for the device, but for tiles. Returns false for shapes that no variant takes.
inline bool describe_varlen(
    VarlenArguments* arguments, VarlenBatch* sequences, const void* q, const void* k, const void* v,
    const int* query_starts, const int* key_starts, void* o, float* lse, int batch, int total_q, int total_k,
    int heads_q, int heads_k, int causal, float softmax_scale) {
    if (query_starts == nullptr || key_starts == nullptr) return false;
    if (!describe_forward(
            arguments, q, k, v, o, lse, batch, total_q, total_k, heads_q, heads_k, causal, softmax_scale)) {
        return false;
    }
    arguments->batch = 1;  // of parts: all sequences together
    arguments->total_queries = total_q;
    sequences->query_starts = query_starts;
    sequences->key_starts = key_starts;
    sequences->batch = batch;
    sequences->causal = arguments->causal;
    return true;
}

/// Room for parts of split keys behind a plan of `most` tiles.
struct ListedSplits {
    void* start;
    size_t bytes;

    ListedSplits(void* workspace, size_t workspace_bytes, long long most)
        : start(static_cast<uint8_t*>(workspace) + VarlenPlan::bytes(most)),
          bytes(workspace_bytes - VarlenPlan::bytes(most)) {}
    long long capacity(long long rows, int columns) const { return SplitWorkspace::capacity(bytes, rows, columns); }
};

/// Plan, attention and, where tiles are few and of up to `longest` keys, merge of their parts. The workspace holds the plan, and
/// parts behind it.
template <class Tile>
int launch_sequences(
    VarlenArguments a, VarlenBatch batch, int longest, int multiprocessors, void* workspace, size_t workspace_bytes,
    void* queue) {
    const auto kernel = flash_forward<ListedTile<Tile>>;
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
    if (status != cudaSuccess) return status;

    batch.pack = a.pack;
    batch.tile_rows = Tile::kQueries;
    batch.step_keys = Tile::kKeys;
    batch.head_groups = 1;
    batch.group_heads = a.heads_q;
    batch.section_keys = 0;
    batch.plan = static_cast<VarlenPlan*>(workspace);
    const long long most = batch.most_tiles(a.total_queries), blocks = most * (a.heads_q >> a.pack);
    if (blocks > 0x7fffffffLL) return kUnsupportedShape;
    if (workspace == nullptr || workspace_bytes < VarlenPlan::bytes(most)) return kWorkspaceTooSmall;
    const int planned = launch_plan(batch, most, queue);
    if (planned != kOk) return planned;
    a.plan = batch.plan;
    const ListedSplits list(workspace, workspace_bytes, most);
    const long long rows = static_cast<long long>(a.total_queries) * a.heads_q;
    a.splits = choose_splits(
        blocks, ceil_div(longest < 1 ? 1 : longest, Tile::kKeys), multiprocessors * Tile::kBlocks,
        list.capacity(rows, Tile::kHeadDim), kFewCost);
    if (a.splits > 1) a.parts = SplitWorkspace::at(list.start, a.splits, rows, Tile::kHeadDim);
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(a.splits));
    LAUNCH(kernel, grid, dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
    const int launched = LAUNCH_STATUS();
    if (launched != kOk || a.splits == 1) return launched;
    const CombineArguments<UniformSplits> merge = {{a.splits, rows}, a.parts,   a.o, a.lse, rows,
                                                   a.total_queries,  a.heads_q, 1};
    return launch_combine<typename Tile::Element, Tile::kHeadDim>(merge, a.splits, queue);
}

}  // namespace attention
