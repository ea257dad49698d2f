// SPDX-License-Identifier: MIT
// Host side of the Hopper attention forward for packed sequences, shared tiles and split keys (tile/wgmma_flash_sequence.h).
#pragma once

#include <algorithm>
#include <cstddef>

#include "tile/flash_varlen.h"
#include "tile/sequence_tensor_map.h"
#include "tile/wgmma_flash_launch.h"
#include "tile/wgmma_flash_sequence.h"

#ifndef FEW
#define FEW 0
#endif

/// Tensor maps and launch; `p` lacks nothing but what the arguments say.
template <class Shape>
int launch_sequence_kernel(typename Shape::Problem p, const ForwardArguments& a, int blocks, bool early, void* queue) {
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

/// The merge, which may start before the parts are there (tile/combine_splits.h).
template <typename Element, int kColumns, typename Parts>
__global__ void __launch_bounds__(kCombineWarps * 32) combine_early(const __grid_constant__ CombineArguments<Parts> a) {
    combine_block<Element, kColumns>(a, [] { grid_dependency_wait(); });
}

template <class Element, int kHeadDim>
int launch_combine_early(CombineArguments<UniformParts> merge, void* queue) {
    const int blocks = share_segments<kHeadDim>(merge, merge.parts.splits);
    return launch_cluster(
        combine_early<Element, kHeadDim, UniformParts>, blocks, kCombineWarps * 32, 1, 0, EARLY_START != 0, queue, merge);
}

constexpr SplitCost kPartCost = {3.0, 4.0, 0.1};   // in steps of 128 keys

/// Packed sequences: plan, attention and, with kSplit and few tiles of up to `longest` keys, merge. The workspace holds the
/// plan, and parts behind it.
template <class Shape, bool kSplit>
int launch_sequences(const VarlenArguments& a, VarlenBatch batch, int longest, const FlashLaunch& to) {
    batch.pack = a.pack;
    batch.tile_rows = Shape::kQueries;
    batch.step_keys = Shape::kKeys;
    batch.plan = static_cast<VarlenPlan*>(to.workspace);
    const long long most = batch.most_tiles(a.total_queries), units = most * (a.heads_q >> a.pack);
    if (units > 0x7fffffffLL) return kUnsupportedShape;
    if (to.workspace == nullptr || to.workspace_bytes < VarlenPlan::bytes(most)) return kWorkspaceTooSmall;
    const int planned = launch_plan(batch, most, to.queue);
    if (planned != kOk) return planned;
    typename Shape::Problem p{};
    p.pack = a.pack;
    p.all_queries = a.total_queries;
    p.all_keys = a.seqlen_k;
    p.plan = batch.plan;
    const int blocks = static_cast<int>(std::min<long long>(units, to.multiprocessors));
    if constexpr (kSplit) {
        const ListedParts list(to.workspace, to.workspace_bytes, most);
        const long long rows = static_cast<long long>(a.total_queries) * a.heads_q;
        const int steps = ceil_div(std::max(longest, 1), Shape::kKeys);
        p.splits = choose_splits(units, steps, to.multiprocessors, list.capacity(rows, Shape::kHeadDim), kPartCost);
        p.steps_per_split = ceil_div(steps, p.splits);
        if (p.splits > 1) {
            if (units * p.splits > 0x7fffffffLL) return kUnsupportedShape;
            p.parts = SplitWorkspace::at(list.start, p.splits, rows, Shape::kHeadDim);
            const int all = static_cast<int>(std::min<long long>(units * p.splits, to.multiprocessors));
            const int launched = launch_sequence_kernel<Shape>(p, a, all, EARLY_START != 0, to.queue);
            if (launched != kOk) return launched;
            return launch_combine_early<typename Shape::Element, Shape::kHeadDim>(
                {{p.splits, rows}, p.parts, a.o, a.lse, rows, a.total_queries, a.heads_q, 1}, to.queue);
        }
    }
    return launch_sequence_kernel<Shape>(p, a, blocks, EARLY_START != 0, to.queue);
}

/// Sequences of one length: shared tiles (a.pack) and split keys, as many as `cost` and the workspace allow.
template <class Shape>
int launch_parts(const ForwardArguments& a, SplitCost cost, const FlashLaunch& to) {
    typename Shape::Problem p{};
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
    return launch_combine_early<typename Shape::Element, Shape::kHeadDim>(
        {{p.splits, rows}, p.parts, a.o, a.lse, rows, a.seqlen_q, a.heads_q, 1}, to.queue);
}

/// Few queries, or too few tiles to fill the device: heads that read the same keys share tiles where that takes fewer of them,
/// and keys are split.
template <class Element, int kHeadDim>
int launch_few(ForwardArguments a, const FlashLaunch& to) {
    constexpr bool kWide = kHeadDim == 256;
    using One = FlashShape<Element, kHeadDim, 1, kWide ? 80 : 128, 0, 2, 2, 24, SequenceWork<false, true>>;
    const SplitCost cost = FEW == 2 ? SplitCost{1.5, 2.0, 0.05} : kPartCost;
    const auto tiles = [&](int pack) { return ceil_div(a.seqlen_q << pack, 64) * (a.heads_q >> pack); };
    a.pack = most_heads_packed(a.heads_q / a.heads_k, 64);
    while (a.pack > 0 && tiles(a.pack - 1) <= tiles(a.pack)) --a.pack;
    if constexpr (kHeadDim == 128) {
        using Two = FlashShape<Element, kHeadDim, 2, 128, kFlashTurns, 3, 3, 24, SequenceWork<false, true>>;
        const int most = most_heads_packed(a.heads_q / a.heads_k, 64);
        if (a.seqlen_q << most > 64) {
            a.pack = most;
            return launch_parts<Two>(a, cost, to);
        }
    }
    return launch_parts<One>(a, cost, to);
}
