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
    arguments->total_queries = total_q;
    sequences->query_starts = query_starts;
    sequences->key_starts = key_starts;
    sequences->batch = batch;
    sequences->causal = arguments->causal;
    return true;
}

/// Plan and attention. The workspace holds the plan.
template <class Tile>
int launch_sequences(VarlenArguments a, VarlenBatch batch, void* workspace, size_t workspace_bytes, void* queue) {
    const auto kernel = flash_forward<ListedTile<Tile>>;
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
    if (status != cudaSuccess) return status;

    batch.pack = a.pack;
    batch.tile_rows = Tile::kQueries;
    batch.step_keys = Tile::kKeys;
    batch.plan = static_cast<VarlenPlan*>(workspace);
    const long long most = batch.most_tiles(a.total_queries), blocks = most * (a.heads_q >> a.pack);
    if (blocks > 0x7fffffffLL) return kUnsupportedShape;
    if (workspace == nullptr || workspace_bytes < VarlenPlan::bytes(most)) return kWorkspaceTooSmall;
    const int planned = launch_plan(batch, most, queue);
    if (planned != kOk) return planned;
    a.plan = batch.plan;
    a.splits = 1;
    LAUNCH(kernel, dim3(static_cast<unsigned>(blocks)), dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
    return LAUNCH_STATUS();
}
