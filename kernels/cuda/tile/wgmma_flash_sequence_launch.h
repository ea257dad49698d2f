// SPDX-License-Identifier: MIT
// Host side of the Hopper attention forward for packed sequences (tile/wgmma_flash_sequence.h): list, tensor maps, launch.
//
// Which launch may overlap with which: with EARLY_START both kernels of a call may start while what is before them runs, and
// both wait for it to be complete before they touch global memory and before they let the next one start. So each one's wait
// covers all that came before: the next call's list is written when this call's attention, which reads list and count, has
// ended, also where both use one workspace.
#pragma once

#include <algorithm>
#include <cstddef>

#include "tile/flash_varlen.h"
#include "tile/sequence_tensor_map.h"
#include "tile/wgmma_flash_launch.h"
#include "tile/wgmma_flash_sequence.h"

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
    constexpr long long kKeyBytes = 4LL * Shape::kHeadDim;   // of one position in keys and values
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
        error = launch_cluster(plan_sequences, plan_blocks(most), kPlanThreads, 1, 0, EARLY_START != 0, to.queue, batch);
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
        wgmma_flash<Shape>, blocks, Shape::kThreads, 1, Shape::kSharedBytes, EARLY_START != 0, to.queue, query_map, key_map,
        value_map, p);
}
