// SPDX-License-Identifier: MIT
// The block-scaled FP8 product for Hopper: TMA fills a ring of K blocks, consumer warpgroups multiply it by wgmma.
//
// Roles in a block: kConsumers warpgroups that multiply, then a warp that drives TMA and a warp that copies scales. They meet
// at two mbarriers per stage of the ring: full (TMA's bytes and the 32 lanes' scales have landed) and empty (every consumer
// warp has read it; with paired blocks the consumers of both, since either block's TMA writes into the other).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ptx/grid_dependency.h"
#include "ptx/shared_address.h"
#include "ptx/warp_uniform.h"
#include "ptx/warpgroup_registers.h"
#include "tile/wgmma_ahead.h"
#include "tile/wgmma_consume.h"
#include "tile/wgmma_exchange.h"
#include "tile/wgmma_produce.h"
#include "tile/wgmma_shape.h"
#include "tile/wgmma_store.h"
#include "tile/wgmma_work.h"

/// The one tile of this consumer thread's cluster, or rather its part of K and then its share of the tile.
template <class Shape>
__device__ __forceinline__ void consume_part(const WgmmaMemory<Shape>& memory, const Consumer& who, const WgmmaProblem& p) {
    WgmmaConsumer<Shape> consumer = {memory, who, {}, {}};
    const WgmmaWork work = WgmmaWalk<Shape>(p).work(p);
    const Exchange<Shape> exchange(memory, who);
    const ShareStore<Shape> store(who, p, work);
    if (exchange.parts > 1) cluster_wait();   // the others have made their mbarriers
    WgmmaSums<Shape> sums;
    consumer.sum(sums, work);
    if (exchange.parts > 1) exchange.add(memory, sums);
    store.store(who, sums, exchange, p, work);
}

/// All tiles of this consumer thread.
template <class Shape>
__device__ __forceinline__ void consume(
    const WgmmaMemory<Shape>& memory, const Consumer& who, const TensorMap& output, const WgmmaProblem& p) {
    if constexpr (Shape::kAhead) {
        if (p.boxes) {
            consume_ahead<Shape>(memory, who, output, p);
            tma_store_wait_read<0>();
            return;
        }
    }
    WgmmaConsumer<Shape> consumer = {memory, who, {}, {}};
    if constexpr (Shape::kTurns) {
        if (who.group == 1) named_barrier_arrive(kTurnBarrier, 256);   // the first turn is warpgroup 0's
    }
    for (WgmmaWalk<Shape> walk(p); walk.more(); walk.next()) {
        const WgmmaWork work = walk.work(p);
        WgmmaSums<Shape> sums;
        consumer.sum(sums, work);
        if (p.boxes) {
            if constexpr (Shape::kTokensAreRows) store_boxes<Shape>(memory, who, sums, output, work);
            else store_turned_boxes<Shape>(memory, who, sums, output, work);
        } else {
            store_elements<Shape>(who, sums, p, work);
        }
    }
    if constexpr (Shape::kTurns) {
        if (who.group == 0) named_barrier_sync(kTurnBarrier, 256);   // takes the turn that nobody needs
    }
    tma_store_wait_read<0>();
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident) wgmma_gemm(
    const __grid_constant__ TensorMap rows, const __grid_constant__ TensorMap columns,
    const __grid_constant__ TensorMap output, const WgmmaProblem p) {
    uint8_t* const start = swizzled_shared();
    const WgmmaMemory<Shape> memory = {start, shared_address(start)};
    const int warp = warp_uniform(threadIdx.x / 32), lane = threadIdx.x % 32;
    constexpr int kTileWarp = Shape::kConsumerThreads / 32, kScaleWarp = kTileWarp + 1;

    // The warp that drives TMA makes the mbarriers, so that it need not wait for anybody before its first load. The others have
    // time: to fetch the maps, and the first weights.
    if (warp == kTileWarp) {
        if (lane == 0) {
            for (int stage = 0; stage < Shape::kStages; ++stage) {
                mbarrier_init(memory.full(stage), 1 + 32);
                mbarrier_init(memory.empty(stage), Shape::kConsumerThreads / 32 * Shape::kPair);
            }
            if constexpr (Shape::kExchange) expect_sums<Shape>(memory);
            mbarrier_fence_init();
        }
        __syncwarp();
    } else if (warp == kScaleWarp && lane == 0) {
        tma_prefetch_map(rows);
        tma_prefetch_map(columns);
        if constexpr (!Shape::kExchange) tma_prefetch_map(output);
    }
    // An exchange needs its cluster's mbarriers at its end only, and meets there once more.
    const bool exchanges = Shape::kExchange && cluster_blocks() > 1;
    if (exchanges) cluster_arrive_relaxed();
    if constexpr (Shape::kPair == 2) {
        cluster_arrive_relaxed();   // the fence above publishes the mbarriers, and without one of all memory
        cluster_wait();
    } else if (warp == kTileWarp) {
        named_barrier_arrive(kReadyBarrier, Shape::kThreads);
    } else {
        named_barrier_sync(kReadyBarrier, Shape::kThreads);
    }

    if (warp < kTileWarp) {
        if constexpr (Shape::kMovesRegisters) take_registers<Shape::kConsumerRegisters>();
        if (p.fetched_blocks > 0) fetch_weights<Shape>(p, threadIdx.x);
        grid_dependency_wait();
        const Consumer who = {warp / 4, warp % 4, lane};
        if constexpr (Shape::kExchange) consume_part<Shape>(memory, who, p);
        else consume<Shape>(memory, who, output, p);
    } else {
        if constexpr (Shape::kMovesRegisters) give_registers<Shape::kProducerRegisters>();
        if (warp == kTileWarp && lane == 0) produce_tiles<Shape>(memory, rows, columns, p);
        if (warp == kScaleWarp) produce_scales<Shape>(memory, p, lane);
        __syncwarp();
        if (exchanges) {
            cluster_wait();
            cluster_arrive_relaxed();
        }
    }
    // Until here others read this block's memory.
    if (exchanges) cluster_wait();
}
