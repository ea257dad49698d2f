// SPDX-License-Identifier: MIT
// The block-scaled FP8 product for Hopper: TMA fills a ring of K blocks, consumer warpgroups multiply it by wgmma.
//
// Roles in a block: kConsumers warpgroups that multiply, then a warp that drives TMA and a warp that copies scales. They meet
// at two mbarriers per stage of the ring: full (TMA's bytes and the 32 lanes' scales have landed) and empty (every consumer
// warp has read it; with paired blocks the consumers of both, since either block's TMA writes into the other).
#pragma once

#include <cstddef>
#include <cstdint>

#include "gemm/cluster_reduce.h"
#include "gemm/epilogue.h"
#include "gemm/mainloop.h"
#include "gemm/producer.h"
#include "gemm/scheduler.h"
#include "gemm/shape.h"
#include "ptx/launch_dependency.h"
#include "ptx/ldst.h"
#include "ptx/thread.h"

namespace gemm {

/// The one tile of this consumer thread's cluster, or rather its part of K and then its share of the tile.
template <class Shape>
__device__ __forceinline__ void consume_split(
    const WgmmaMemory<Shape>& memory, const Consumer& who, const WgmmaProblem& p) {
    WgmmaConsumer<Shape> consumer = {memory, who, {}, {}};
    const WorkTile work = TileScheduler<Shape>(p).work(p);
    const ClusterReduce<Shape> reduce(memory, who);
    const ShareStore<Shape> store(who, p, work);
    if (reduce.parts > 1) cluster_wait();  // the others have made their mbarriers
    WgmmaSums<Shape> sums;
    consumer.sum(sums, work);
    if (reduce.parts > 1) reduce.add(memory, sums);
    store.store(who, sums, reduce, p, work);
}

/// All tiles of this consumer thread.
template <class Shape>
__device__ __forceinline__ void consume(
    const WgmmaMemory<Shape>& memory, const Consumer& who, const TensorMap& output, const WgmmaProblem& p) {
    if constexpr (Shape::kPipelined) {
        if (p.boxes) {
            consume_pipelined<Shape>(memory, who, output, p);
            tma_store_wait_read<0>();
            return;
        }
    }
    WgmmaConsumer<Shape> consumer = {memory, who, {}, {}};
    if constexpr (Shape::kPingPong) {
        if (who.group == 1) named_barrier_arrive(kPingPongBarrier, 256);  // the first turn is warpgroup 0's
    }
    for (TileScheduler<Shape> scheduler(p); scheduler.more(); scheduler.next()) {
        const WorkTile work = scheduler.work(p);
        WgmmaSums<Shape> sums;
        consumer.sum(sums, work);
        if (p.boxes) {
            if constexpr (Shape::kTokensAreRows) store_tma<Shape>(memory, who, sums, output, work);
            else store_tma_transposed<Shape>(memory, who, sums, output, work);
        } else {
            store_elements<Shape>(who, sums, p, work);
        }
    }
    if constexpr (Shape::kPingPong) {
        if (who.group == 0)
            named_barrier_sync(
                kPingPongBarrier, 256);  // consume the last ping-pong arrival so that the barrier's counts balance
    }
    tma_store_wait_read<0>();
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident) wgmma_gemm(
    const __grid_constant__ TensorMap rows, const __grid_constant__ TensorMap row_tail,
    const __grid_constant__ TensorMap columns, const __grid_constant__ TensorMap column_tail,
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
            if constexpr (Shape::kClusterReduce) expect_sums<Shape>(memory);
            mbarrier_fence_init();
        }
        __syncwarp();
    } else if (warp == kScaleWarp && lane == 0) {
        tma_prefetch_map(rows);
        tma_prefetch_map(columns);
        if (p.tail_rows > 0) tma_prefetch_map(row_tail);
        if (p.tail_columns > 0) tma_prefetch_map(column_tail);
        if constexpr (!Shape::kClusterReduce) tma_prefetch_map(output);
    }
    // A cluster reduction needs its cluster's mbarriers at its end only; the blocks meet there once more.
    const bool reduces = Shape::kClusterReduce && cluster_blocks() > 1;
    if (reduces) cluster_arrive_relaxed();
    if constexpr (Shape::kPair == 2) {
        cluster_arrive_relaxed();  // the fence above publishes the mbarriers, and without one of all memory
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
        if constexpr (Shape::kClusterReduce) consume_split<Shape>(memory, who, p);
        else consume<Shape>(memory, who, output, p);
    } else {
        if constexpr (Shape::kMovesRegisters) give_registers<Shape::kProducerRegisters>();
        if (warp == kTileWarp && lane == 0) produce_tiles<Shape>(memory, {rows, row_tail, columns, column_tail}, p);
        if (warp == kScaleWarp) produce_scales<Shape>(memory, p, lane);
        __syncwarp();
        if (reduces) {
            cluster_wait();
            cluster_arrive_relaxed();
        }
    }
    // Until here others read this block's memory.
    if (reduces) cluster_wait();
}

}  // namespace gemm
