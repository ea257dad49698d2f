// SPDX-License-Identifier: MIT
// The mma.sync attention forward (tile/flash_forward.h) over packed sequences: a block takes one tile of the plan
// (tile/varlen_plan.h) and one head, or nothing where the plan has fewer tiles than there could be.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tile/flash_launch.h"
#include "tile/varlen_plan.h"

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
    asm volatile("" : "+r"(block));   // as for sequences of one length
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
    VarlenArguments* arguments, VarlenBatch* sequences, const void* q, const void* k, const void* v, const int* query_starts,
    const int* key_starts, void* o, float* lse, int batch, int total_q, int total_k, int heads_q, int heads_k, int causal,
    float softmax_scale) {
    if (query_starts == nullptr || key_starts == nullptr) return false;
    if (!describe_forward(
            arguments, q, k, v, o, lse, batch, total_q, total_k, heads_q, heads_k, causal, softmax_scale)) {
        return false;
    }
    arguments->batch = 1;   // of parts: all sequences together
    arguments->total_queries = total_q;
    sequences->query_starts = query_starts;
    sequences->key_starts = key_starts;
    sequences->batch = batch;
    sequences->causal = arguments->causal;
    return true;
}

/// Room for parts of split keys behind a plan of `most` tiles.
struct ListedParts {
    void* start;
    size_t bytes;

    ListedParts(void* workspace, size_t workspace_bytes, long long most)
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
    const ListedParts list(workspace, workspace_bytes, most);
    const long long rows = static_cast<long long>(a.total_queries) * a.heads_q;
    a.splits = choose_splits(blocks, ceil_div(longest < 1 ? 1 : longest, Tile::kKeys), multiprocessors * Tile::kBlocks,
                             list.capacity(rows, Tile::kHeadDim), kFewCost);
    if (a.splits > 1) a.parts = SplitWorkspace::at(list.start, a.splits, rows, Tile::kHeadDim);
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(a.splits));
    LAUNCH(kernel, grid, dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
    const int launched = LAUNCH_STATUS();
    if (launched != kOk || a.splits == 1) return launched;
    const CombineArguments<UniformParts> merge = {
        {a.splits, rows}, a.parts, a.o, a.lse, rows, a.total_queries, a.heads_q, 1};
    return launch_combine<typename Tile::Element, Tile::kHeadDim>(merge, a.splits, queue);
}
