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
#include "tile/wgmma_consume.h"
#include "tile/wgmma_halves.h"
#include "tile/wgmma_produce.h"
#include "tile/wgmma_shape.h"
#include "tile/wgmma_store.h"
#include "tile/wgmma_work.h"

/// All tiles of this consumer thread: one where K is in parts. With an exchange its sums are left in shared memory.
template <class Shape>
__device__ __forceinline__ void consume(
    const WgmmaMemory<Shape>& memory, const Consumer& who, const TensorMap& output, const WgmmaProblem& p) {
    WgmmaConsumer<Shape> consumer = {memory, who, {}, {}};
    if constexpr (Shape::kTurns) {
        if (who.group == 1) named_barrier_arrive(kTurnBarrier, 256);   // the first turn is warpgroup 0's
    }
    for (WgmmaWalk<Shape> walk(p); walk.more(); walk.next()) {
        const WgmmaWork work = walk.work(p);
        WgmmaSums<Shape> sums;
        if constexpr (Shape::kMeets) named_barrier_sync(kAllBarrier, Shape::kConsumerThreads);
        consumer.sum(sums, work);
        if constexpr (Shape::kHalves) {
            finish_halves<Shape>(memory, who, sums, output, p, work, walk.rank);
        } else if constexpr (Shape::kExchange) {
            offer_sums<Shape>(memory, who, sums);
        } else if (p.boxes) {
            if constexpr (Shape::kTokensAreRows) store_boxes<Shape>(memory, who, sums, output, work);
            else store_turned_boxes<Shape>(memory, who, sums, output, work);
        } else {
            store_elements<Shape>(who, sums, p, work);
        }
    }
    if constexpr (Shape::kTurns) {
        if (who.group == 0) named_barrier_sync(kTurnBarrier, 256);   // takes the turn that nobody needs
    }
    if constexpr (!Shape::kExchange) tma_store_wait_read<0>();
}

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kResident) wgmma_gemm(
    const __grid_constant__ TensorMap rows, const __grid_constant__ TensorMap columns,
    const __grid_constant__ TensorMap output, const WgmmaProblem p) {
    uint8_t* const start = swizzled_shared();
    const WgmmaMemory<Shape> memory = {start, shared_address(start)};
    const int warp = warp_uniform(threadIdx.x / 32), lane = threadIdx.x % 32;
    constexpr int kTileWarp = Shape::kConsumerThreads / 32, kScaleWarp = kTileWarp + 1;

    if (threadIdx.x == 0) {
        for (int stage = 0; stage < Shape::kStages; ++stage) {
            mbarrier_init(memory.full(stage), 1 + 32);
            mbarrier_init(memory.empty(stage), Shape::kConsumerThreads / 32 * Shape::kPair);
        }
        mbarrier_fence_init();
        tma_prefetch_map(rows);
        tma_prefetch_map(columns);
        if constexpr (!Shape::kExchange) tma_prefetch_map(output);
    }
    if constexpr (Shape::kPair == 2 || Shape::kHalves) cluster_barrier();
    else __syncthreads();
    if (p.fetched_blocks > 0) fetch_weights<Shape>(p, threadIdx.x);
    grid_dependency_wait();

    if (warp < kTileWarp) {
        if constexpr (Shape::kMovesRegisters) take_registers<Shape::kConsumerRegisters>();
        consume<Shape>(memory, {warp / 4, warp % 4, lane}, output, p);
        if constexpr (Shape::kExchange) {
            cluster_barrier();   // all sums are offered
            store_sums<Shape>(memory, threadIdx.x, p, WgmmaWalk<Shape>(p).work(p));
        }
    } else {
        if constexpr (Shape::kMovesRegisters) give_registers<Shape::kProducerRegisters>();
        if (warp == kTileWarp && lane == 0) produce_tiles<Shape>(memory, rows, columns, p);
        if (warp == kScaleWarp) produce_scales<Shape>(memory, p, lane);
        __syncwarp();
        if constexpr (Shape::kParts) cluster_barrier();
    }
    // Until here others read, fill or arrive in this block's memory.
    if constexpr (Shape::kExchange || Shape::kPair == 2) cluster_barrier();
}
