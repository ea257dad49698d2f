// SPDX-License-Identifier: MIT
// Attention forward on wgmma: the producers, the kernel, and its launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attention/forward_mainloop.h"
#include "attention/mma_sync_launch.h"
#include "ceil_div.h"
#include "common/launch_cluster.h"
#include "common/ring.h"
#include "common/tensor_map.h"
#include "ptx/launch_dependency.h"
#include "ptx/mbarrier.h"
#include "ptx/thread.h"
#include "ptx/tma.h"

namespace attention {

// The device code of attention forward on wgmma: TMA fills a ring of key and value tiles, consumer warpgroups multiply.
//
// Roles in a block: kGroups warpgroups with 64 query rows each, then two threads that drive TMA, one for queries and keys, which
// also decides on tiles, and one for values. They meet at mbarriers: full (the bytes have landed) and empty (every consumer
// warp has read them), for each stage of the keys and of the values, and for each warpgroup's queries, along with which it is
// told the tile. See flash_attention/wgmma_tma.cu for the algorithm, the instances and the launch.

/// Bytes of a warpgroup's queries, unless a schedule says otherwise.
template <class Shape, class Problem>
__device__ __forceinline__ constexpr int query_bytes(const Problem&) {
    return Shape::kQueryBytes;
}

/// Prepare the places of queries for rows that no load fills: here there are none.
template <class Shape, class Problem>
__device__ __forceinline__ void clear_queries(const FlashMemory<Shape>&, const Problem&) {}

/// Tell consumers from `begin` to `end` the tile and load their queries, if there are any.
template <class Shape>
__device__ __forceinline__ void send_tile(
    const FlashMemory<Shape>& memory, const TensorMap& queries, const typename Shape::Problem& p,
    const typename Shape::Tile& tile, unsigned number, int begin = 0, int end = Shape::kGroups) {
    for (int place = begin; place < end; ++place) {
        const int group = Shape::kLastFirst ? Shape::kGroups - 1 - place : place;
        const int slot = memory.slot(group, number);
        const uint32_t full = memory.query_full(slot);
        mbarrier_wait(memory.query_empty(slot), memory.parity(group, number) ^ 1);
        memory.tile(group, number) = tile;
        if (tile.steps > 0 && flash_has_rows(p, tile, group * 64)) {
            mbarrier_arrive_expect(full, query_bytes<Shape>(p));
            load_queries<Shape>(p, queries, memory.query(slot), full, tile, group);
        } else {
            mbarrier_arrive(full);
        }
    }
}

/// Decide on this block's tiles, tell everybody, load queries and keys. One thread.
template <class Shape>
__device__ __forceinline__ void produce_flash(
    const FlashMemory<Shape>& memory, const TensorMap& queries, const TensorMap& keys,
    const typename Shape::Problem& p) {
    using Tile = typename Shape::Tile;
    RingPosition<Shape::kKeyStages> key_at;
    unsigned number = 0;  // of the tile
    const auto announce = [&](const Tile& tile) {
        mbarrier_wait(memory.tile_empty(number), number / 2 % 2 ^ 1);
        memory.tile(Shape::kGroups, number) = tile;
        mbarrier_arrive(memory.tile_full(number));
    };
    for (typename Shape::Schedule::template Scheduler<Shape> scheduler(p); scheduler.more(p); scheduler.next(p)) {
        const Tile next = scheduler.tile(p);
        if (next.steps <= 1) scheduler.fetch(p);
        announce(next);
        const Tile& tile = Shape::Schedule::kept(next, memory.tile(Shape::kGroups, number));
        const typename Shape::Schedule::template Source<Shape> source(p, tile);
        const auto load_keys = [&](int step) {
            mbarrier_wait(memory.keys_empty(key_at.stage), key_at.parity ^ 1);
            const uint32_t full = memory.keys_full(key_at.stage);
            mbarrier_arrive_expect(full, Shape::kKeyBytes);
            source.load(keys, memory.keys(key_at.stage), full, step);
            key_at.advance();
        };
        // What is free first: a place that a tile before the last one had, or that of the keys of the last step but one.
        constexpr int kFreeFirst = Shape::kQueryStages > 1 ? Shape::kGroups : Shape::kSpareQuery ? 1 : 0;
        send_tile(memory, queries, p, tile, number, 0, kFreeFirst);
        if (tile.steps > 0) load_keys(tile.steps - 1);
        send_tile(memory, queries, p, tile, number, kFreeFirst);
        ++number;
        for (int step = tile.steps - 2; step >= 0; --step) {
            // As late as the answer allows: who has a long tile shall not take another long one meanwhile.
            if (step == 0) scheduler.fetch(p);
            load_keys(step);
        }
    }
    Tile end{};
    end.steps = kFlashNoTile;
    announce(end);
    send_tile(memory, queries, p, end, number);
}

/// Load values. Another thread, since a step's values find room later than the next step's keys, which must not wait.
template <class Shape>
__device__ __forceinline__ void produce_values(
    const FlashMemory<Shape>& memory, const TensorMap& values, const typename Shape::Problem& p) {
    RingPosition<Shape::kValueStages> value_at;
    for (unsigned number = 0;; ++number) {
        mbarrier_wait(memory.tile_full(number), number / 2 % 2);
        const typename Shape::Tile tile = memory.tile(Shape::kGroups, number);
        mbarrier_arrive(memory.tile_empty(number));
        if (tile.steps == kFlashNoTile) break;
        const typename Shape::Schedule::template Source<Shape> source(p, tile);
        for (int step = tile.steps - 1; step >= 0; --step) {
            mbarrier_wait(memory.values_empty(value_at.stage), value_at.parity ^ 1);
            const uint32_t full = memory.values_full(value_at.stage);
            mbarrier_arrive_expect(full, Shape::kKeyBytes);
            source.load(values, memory.values(value_at.stage), full, step);
            value_at.advance();
        }
    }
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) wgmma_flash(
    const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap keys,
    const __grid_constant__ TensorMap values, const __grid_constant__ typename Shape::Problem p) {
    const FlashMemory<Shape> memory = {shared_address(swizzled_shared())};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32);

    if (threadIdx.x == 0) {
        constexpr int kConsumerWarps = Shape::kConsumerThreads / 32;
        for (int slot = 0; slot < Shape::kQuerySlots; ++slot) {
            mbarrier_init(memory.query_full(slot), 1);
            mbarrier_init(memory.query_empty(slot), 4);
        }
        for (int stage = 0; stage < Shape::kKeyStages; ++stage) {
            mbarrier_init(memory.keys_full(stage), 1);
            mbarrier_init(memory.keys_empty(stage), kConsumerWarps);
        }
        for (int stage = 0; stage < Shape::kValueStages; ++stage) {
            mbarrier_init(memory.values_full(stage), 1);
            mbarrier_init(memory.values_empty(stage), kConsumerWarps);
        }
        for (unsigned number = 0; number < 2; ++number) {
            mbarrier_init(memory.tile_full(number), 1);
            mbarrier_init(memory.tile_empty(number), 1);
        }
        mbarrier_fence_init();
        tma_prefetch_map(queries);
        tma_prefetch_map(keys);
        tma_prefetch_map(values);
    }
    clear_queries(memory, p);
    __syncthreads();
    grid_dependency_wait();
    grid_dependency_release();

    if (warp < Shape::kConsumerThreads / 32) {
        if constexpr (Shape::kMovesRegisters) take_registers<Shape::kConsumerRegisters>();
        consume_flash<Shape>(memory, p, warp_uniform(recomputed_thread() / 128), recomputed_thread() % 32);
    } else {
        if (warp == Shape::kConsumerThreads / 32) Shape::Schedule::template prepare<Shape>(p);
        if constexpr (Shape::kMovesRegisters) give_registers<Shape::kProducerRegisters>();
        if (recomputed_thread() % 32 == 0) {
            if (warp == Shape::kConsumerThreads / 32) produce_flash<Shape>(memory, queries, keys, p);
            else if (warp == Shape::kConsumerThreads / 32 + 1) produce_values<Shape>(memory, values, p);
        }
        __syncwarp();  // a warp ends as a whole
    }
}

// Host side of attention forward on wgmma (attention/forward.h): tensor maps, order of tiles, grid.

#ifndef EARLY_START
#error "EARLY_START is a tunable of the kernel file: 0 starts after the launch before, 1 beside its end"
#endif

/// How blocks come by their tiles.
enum class TileOrder {
    kShares,     // as many blocks as multiprocessors, equal shares: causal tiles in pairs of a long and a short one
    kCount,      // as many blocks as multiprocessors, which take the longest tile left when they are ready for one
    kOwnBlocks,  // a block per tile, the longest first: the hardware balances, but tiles no longer overlap
};

/// Where a launch finds room: workspace may be null, with no bytes.
struct FlashLaunch {
    int multiprocessors;
    void* workspace;
    size_t workspace_bytes;
    void* queue;
};

constexpr long long kFlashRoom = 32 << 20;  // bytes of keys and values that stay in L2 while blocks walk over them

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
    p.rotates = p.pairs && blocks % ceil_div(p.tiles, 2) == 0;
    if (order == TileOrder::kCount && blocks < p.units) {
        p.taken = static_cast<unsigned*>(to.workspace);
        error = launch_cluster(clear_count, 1, 32, 1, 0, EARLY_START != 0, to.queue, p.taken);
        if (error != 0) return error;
    }
    return launch_cluster(
        wgmma_flash<Shape>, blocks, Shape::kThreads, 1, Shape::kSharedBytes, EARLY_START != 0, to.queue, query_map,
        key_map, value_map, p);
}

}  // namespace attention
