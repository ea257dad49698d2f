// SPDX-License-Identifier: MIT
// The device code of MLA decode on wgmma: three warps that load, two warpgroups that multiply.
#pragma once

#include "ptx/cluster.h"
#include "ptx/compute_now.h"
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

    // What a call waits for before its first load is short: all that the cut of the line reads is asked for at once, and read while
    // eight threads make the barriers. One thread would take 600 cycles for them, the lanes of a warp 2800.
    if (warp < kWarps) {
        if (lane == 0) {
            constexpr int kFull = Shape::kStages * Shape::kPanels, kEmpty = kFull + Shape::kStages * Shape::kParts;
            constexpr int kEach = 4;
            static_assert(kEmpty + 4 == kEach * (kWarps - 1), "the last of these warps has the others");
            if (warp == kWarps - 1) {
                memory.open().part[0].request = memory.open().part[1].request = -1;
                mbarrier_init(shared_address(&memory.open().written), 1);
            } else {
#pragma unroll
                for (int i = 0; i < kEach; ++i) {
                    const int at = kEach * warp + i;
                    const int arrivals = at < kFull ? 1 : at < kEmpty ? 4 * Shape::kPair : at < kEmpty + 2 ? Shape::kPanels : kWarps;
                    mbarrier_init(memory.full(0, 0) + at * 8, arrivals);
                }
            }
            mbarrier_fence_init();
        }
        __syncwarp();
    } else if (warp < kWarps + Shape::kParts) {
        if (lane == 0) tma_prefetch_map(warp == kWarps ? queries : warp == kWarps + 1 ? cache : a.rotary);
        __syncwarp();
    } else {
        // Also before the wait: L2 is where the previous kernel's writes go, so nothing stale can stay there.
        fetch_start(a, static_cast<int>(blockIdx.x) / a.row_tiles, lane);
        fetch_inputs(a, Shape::kWidth, lane, 32);
    }
    int group = 0;
    if constexpr (Shape::kExpectedStart) {
        group = a.row_tiles == 1 ? static_cast<int>(blockIdx.x) : static_cast<int>(blockIdx.x) / a.row_tiles;
        compute_now(group);   // before the wait: a division is 40 instructions
    }
    [[maybe_unused]] FirstPiece<Shape::kExpectedStart> first(a, group);
    cluster_arrive_relaxed();   // the fence publishes the barriers; a single block is a cluster of one
    grid_dependency_wait();
    grid_dependency_release();

    using Gather = LatentGather<LatentArguments>;
    if (warp < kWarps) {
        cluster_wait();
        take_registers<Shape::kConsumerRegisters>();
        if (warp < 4) LatentConsumer<Shape, 0>{memory, a, lane}.consume();
        else LatentConsumer<Shape, 1>{memory, a, lane}.consume();
        if (a.schedule.groups != 0) {
            Gather{a, start + Shape::kStage, recomputed_thread()}.run(memory.open());
        }
    } else {
        give_registers<Shape::kProducerRegisters>();
        const int part = warp - kWarps;
        int row_tile = static_cast<int>(blockIdx.x) - group * a.row_tiles;
        if constexpr (!Shape::kExpectedStart) {
            group = static_cast<int>(blockIdx.x) / a.row_tiles;
            row_tile = static_cast<int>(blockIdx.x) % a.row_tiles;
        }
        if (part < Shape::kParts) {
            using Walk = typename Shape::Walk;
            const auto produce = [&](const Walk& walk, bool any, const PageNumbers& numbers, bool expected) {
                cluster_wait();
                const int rank = Shape::kPair == 2 ? cluster_rank() : 0;
                produce_pages<Shape>(memory, queries, cache, a, walk, any, numbers, rank, part, lane, expected);
            };
            if constexpr (Shape::kExpectedStart) {
                Walk rest;
                const PageNumbers numbers = first.numbers(a, group, lane, rest);
                produce(rest, first.any, numbers, first.expected);
            } else {
                Walk walk(a.schedule, group, lane, CutFromLengths());
                DecodePiece piece = {};
                const bool any = walk.next(a.schedule, piece);
                produce(walk, any, page_numbers(a, piece, lane), false);
            }
        } else {
            cluster_wait();
            if (a.schedule.groups != 0) Gather::start<typename Shape::Walk>(a, memory.open(), group, row_tile, lane);
        }
    }
}
