// SPDX-License-Identifier: MIT
// Host side of attention forward on wgmma (tile/wgmma_flash.h): tensor maps, order of tiles, grid.
#pragma once

#include <algorithm>
#include <cstddef>

#include "ceil_div.h"
#include "tile/flash_launch.h"
#include "tile/head_tensor_map.h"
#include "tile/launch_cluster.h"
#include "tile/wgmma_flash.h"

#if !defined(EARLY_START)
#define EARLY_START 1   // a tunable of the kernel file
#endif

/// How blocks come by their tiles.
enum class TileOrder {
    kShares,      // as many blocks as multiprocessors, equal shares: causal tiles in pairs of a long and a short one
    kCount,       // as many blocks as multiprocessors, which take the longest tile left when they are ready for one
    kOwnBlocks,   // a block per tile, the longest first: the hardware balances, but tiles no longer overlap
};

/// Where a launch finds room: workspace may be null, with no bytes.
struct FlashLaunch {
    int multiprocessors;
    void* workspace;
    size_t workspace_bytes;
    void* queue;
};

constexpr long long kFlashRoom = 32 << 20;   // bytes of keys and values that stay in L2 while blocks walk over them

/// Begins a count in the workspace anew. One thread.
__global__ void clear_count(unsigned* count) {
    grid_dependency_wait();
    grid_dependency_release();
    if (threadIdx.x == 0) *count = 0;
}

/// Launch one instance. kCount needs four bytes of workspace and is kShares without them. Returns 0 or the runtime's or the
/// driver's error.
template <class Shape>
int launch_flash(const ForwardArguments& a, TileOrder order, const FlashLaunch& to) {
    const HeadTensor queries = {a.q, a.batch, a.seqlen_q, a.heads_q, Shape::kHeadDim};
    const HeadTensor keys = {a.k, a.batch, a.seqlen_k, a.heads_k, Shape::kHeadDim};
    const HeadTensor values = {a.v, a.batch, a.seqlen_k, a.heads_k, Shape::kHeadDim};
    TensorMap query_map, key_map, value_map;
    int error = encode_head_tensor_map(&query_map, queries, 64);
    if (error == 0) error = encode_head_tensor_map(&key_map, keys, Shape::kKeys);
    if (error == 0) error = encode_head_tensor_map(&value_map, values, Shape::kKeys);
    if (error != 0) return error;

    if (order == TileOrder::kCount && to.workspace_bytes < sizeof(unsigned)) order = TileOrder::kShares;
    FlashProblem p{};
    p.o = a.o;
    p.lse = a.lse;
    p.batch = a.batch;
    p.queries = a.seqlen_q;
    p.keys = a.seqlen_k;
    p.heads = a.heads_q;
    p.heads_per_key_head = a.heads_q / a.heads_k;
    p.causal = a.causal;
    p.scale = a.scale;
    p.tiles = ceil_div(a.seqlen_q, Shape::kQueries);
    const long long heads = static_cast<long long>(a.batch) * a.heads_q;
    p.pairs = a.causal && order == TileOrder::kShares;
    const long long units = heads * (p.pairs ? ceil_div(p.tiles, 2) : p.tiles);
    p.section = 1;
    if (a.causal && !p.pairs) {
        // So many heads that their keys and values stay in L2, so that all their long tiles come before their short ones.
        const long long bytes = 4LL * a.seqlen_k * Shape::kHeadDim;
        p.section = static_cast<int>(std::min(heads, std::max(1LL, kFlashRoom / bytes) * p.heads_per_key_head));
    }
    if (units > 0x7fffffffLL || static_cast<long long>(p.section) * p.tiles > 0x7fffffffLL) return kUnsupportedShape;
    p.units = static_cast<int>(units);
    const int blocks = order == TileOrder::kOwnBlocks ? p.units : std::min(p.units, to.multiprocessors);
    if (order == TileOrder::kCount && blocks < p.units) {
        p.taken = static_cast<unsigned*>(to.workspace);
        error = launch_cluster(clear_count, 1, 32, 1, 0, EARLY_START != 0, to.queue, p.taken);
        if (error != 0) return error;
    }
    return launch_cluster(
        wgmma_flash<Shape>, blocks, Shape::kThreads, 1, Shape::kSharedBytes, EARLY_START != 0, to.queue, query_map, key_map,
        value_map, p);
}
