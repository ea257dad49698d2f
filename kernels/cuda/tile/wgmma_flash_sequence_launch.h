// SPDX-License-Identifier: MIT
// Host side of the Hopper attention forward for packed sequences, shared tiles and split keys (tile/wgmma_flash_sequence.h).
#pragma once

#include <algorithm>
#include <cstddef>

#include "tile/flash_varlen.h"
#include "tile/sequence_tensor_map.h"
#include "tile/wgmma_flash_launch.h"
#include "tile/wgmma_flash_sequence.h"

/// Tensor maps and launch; `p` lacks nothing but what the arguments say.
template <class Shape>
int launch_sequence_kernel(SequenceProblem p, const ForwardArguments& a, int blocks, bool early, void* queue) {
    const SequenceTensor queries = {a.q, p.all_queries, a.heads_q, Shape::kHeadDim};
    const SequenceTensor keys = {a.k, p.all_keys, a.heads_k, Shape::kHeadDim};
    const SequenceTensor values = {a.v, p.all_keys, a.heads_k, Shape::kHeadDim};
    TensorMap query_map, key_map, value_map;
    int error = encode_sequence_tensor_map(&query_map, queries, 64 >> p.pack, 1 << p.pack);
    if (error == 0) error = encode_sequence_tensor_map(&key_map, keys, Shape::kKeys, 1);
    if (error == 0) error = encode_sequence_tensor_map(&value_map, values, Shape::kKeys, 1);
    if (error != 0) return error;
    p.o = a.o;
    p.lse = a.lse;
    p.heads = a.heads_q;
    p.heads_per_key_head = a.heads_q / a.heads_k;
    p.causal = a.causal;
    p.scale = a.scale;
    return launch_cluster(
        wgmma_flash<Shape>, blocks, Shape::kThreads, 1, Shape::kSharedBytes, early, queue, query_map, key_map, value_map, p);
}

/// Packed sequences: plan and attention. The workspace holds the plan.
template <class Shape>
int launch_sequences(const VarlenArguments& a, VarlenBatch batch, const FlashLaunch& to) {
    batch.pack = a.pack;
    batch.tile_rows = Shape::kQueries;
    batch.step_keys = Shape::kKeys;
    batch.plan = static_cast<VarlenPlan*>(to.workspace);
    const long long most = batch.most_tiles(a.total_queries), units = most * (a.heads_q >> a.pack);
    if (units > 0x7fffffffLL) return kUnsupportedShape;
    if (to.workspace == nullptr || to.workspace_bytes < VarlenPlan::bytes(most)) return kWorkspaceTooSmall;
    const int planned = launch_plan(batch, most, to.queue);
    if (planned != kOk) return planned;
    SequenceProblem p{};
    p.pack = a.pack;
    p.all_queries = a.total_queries;
    p.all_keys = a.seqlen_k;
    p.plan = batch.plan;
    const int blocks = static_cast<int>(std::min<long long>(units, to.multiprocessors));
    return launch_sequence_kernel<Shape>(p, a, blocks, false, to.queue);
}

/// Sequences of one length: shared tiles (a.pack) and split keys, as many as `cost` and the workspace allow.
template <class Shape>
int launch_parts(const ForwardArguments& a, SplitCost cost, const FlashLaunch& to) {
    SequenceProblem p{};
    p.pack = a.pack;
    p.queries = a.seqlen_q;
    p.keys = a.seqlen_k;
    const long long all_queries = static_cast<long long>(a.batch) * a.seqlen_q;
    const long long all_keys = static_cast<long long>(a.batch) * a.seqlen_k, rows = all_queries * a.heads_q;
    p.tiles = ceil_div(a.seqlen_q << a.pack, Shape::kQueries);
    const long long tiles = static_cast<long long>(a.batch) * (a.heads_q >> a.pack) * p.tiles;
    p.splits = choose_splits(tiles, ceil_div(a.seqlen_k, Shape::kKeys), to.multiprocessors,
                             SplitWorkspace::capacity(to.workspace_bytes, rows, Shape::kHeadDim), cost);
    if (all_queries > 0x7fffffffLL || all_keys > 0x7fffffffLL || tiles * p.splits > 0x7fffffffLL) return kUnsupportedShape;
    p.all_queries = static_cast<int>(all_queries);
    p.all_keys = static_cast<int>(all_keys);
    p.units = static_cast<int>(tiles * p.splits);
    if (p.splits > 1) p.parts = SplitWorkspace::at(to.workspace, p.splits, rows, Shape::kHeadDim);
    const int launched =
        launch_sequence_kernel<Shape>(p, a, std::min(p.units, to.multiprocessors), EARLY_START != 0, to.queue);
    if (launched != kOk || p.splits == 1) return launched;
    const CombineArguments<UniformParts> merge = {{p.splits, rows}, p.parts, a.o, a.lse, rows, a.seqlen_q, a.heads_q, 1};
    return launch_combine<typename Shape::Element, Shape::kHeadDim>(merge, p.splits, to.queue);
}
