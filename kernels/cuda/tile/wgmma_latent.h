// SPDX-License-Identifier: MIT
// The device code of MLA decode on wgmma: three warps that load, two warpgroups that multiply.
#pragma once

#include "ptx/cluster.h"
#include "ptx/grid_dependency.h"
#include "ptx/mbarrier.h"
#include "ptx/shared_address.h"
#include "ptx/tma.h"
#include "ptx/warp_uniform.h"
#include "ptx/warpgroup_registers.h"
#include "tile/wgmma_latent_consume.h"
#include "tile/wgmma_latent_produce.h"
#include "tile/wgmma_latent_shape.h"

template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) latent_wgmma(
    const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap cache,
    const __grid_constant__ LatentArguments a) {
    uint8_t* const start = swizzled_shared();
    const LatentMemory<Shape> memory = {start, shared_address(start)};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
    constexpr int kWarps = Shape::kConsumerThreads / 32;

    if (threadIdx.x == 0) {
        memory.open().part[0].request = memory.open().part[1].request = -1;
        mbarrier_init(shared_address(&memory.open().written), 1);
        for (int stage = 0; stage < Shape::kStages; ++stage) {
            for (int panel = 0; panel < Shape::kPanels; panel += Shape::kBoxPanels) {
                mbarrier_init(memory.full(stage, panel), 1);
            }
            for (int part = 0; part < Shape::kParts; ++part) mbarrier_init(memory.empty(stage, part), 4 * Shape::kPair);
        }
        for (int buffer = 0; buffer < 2; ++buffer) {
            mbarrier_init(memory.query_full(buffer), Shape::kParts);
            mbarrier_init(memory.query_empty(buffer), kWarps);
        }
        mbarrier_fence_init();
        tma_prefetch_map(queries);
        tma_prefetch_map(cache);
        tma_prefetch_map(a.rotary);
    }
    if constexpr (Shape::kPair == 2) cluster_barrier();
    else __syncthreads();
    // Also before the wait: L2 is where the previous kernel's writes go, so nothing stale can stay there.
    if (warp > kWarps) fetch_inputs(a, Shape::kWidth, static_cast<int>(threadIdx.x) - 32 * (kWarps + 1), 96);
    grid_dependency_wait();
    grid_dependency_release();

    using Gather = LatentGather<LatentArguments>;
    if (warp < kWarps) {
        take_registers<Shape::kConsumerRegisters>();
        if (warp < 4) LatentConsumer<Shape, 0>{memory, a, lane}.consume();
        else LatentConsumer<Shape, 1>{memory, a, lane}.consume();
        if (a.schedule.groups != 0) {
            Gather{a, start + Shape::kStage, recomputed_thread()}.run(memory.open());
        }
    } else {
        give_registers<Shape::kProducerRegisters>();
        const int part = warp - kWarps, block = static_cast<int>(blockIdx.x);
        const int group = block / a.row_tiles, row_tile = block % a.row_tiles;
        if (part < Shape::kParts) {
            const int rank = Shape::kPair == 2 ? cluster_rank() : 0;
            produce_pages<Shape>(memory, queries, cache, a, group, row_tile, rank, part, lane);
        } else if (a.schedule.groups != 0) {
            Gather::start(a, memory.open(), group, row_tile, lane);
        }
    }
    if constexpr (Shape::kPair == 2) {
        __syncwarp();
        cluster_barrier();  // until here the other block loads into this one's memory and arrives there
    }
}
