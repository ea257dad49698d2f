// SPDX-License-Identifier: MIT
// MLA decode of 64 rows and more on wgmma: the kernel, and its launch.
#pragma once

#include <algorithm>
#include <cstddef>

#include "common/launch_cluster.h"
#include "common/tensor_map.h"
#include "launch.h"
#include "mla/wgmma_mainloop.h"
#include "mla/wgmma_producer.h"
#include "mla/wgmma_shape.h"
#include "mla/workspace.h"
#include "ptx/cluster.h"
#include "ptx/launch_dependency.h"
#include "ptx/ldst.h"
#include "ptx/mbarrier.h"
#include "ptx/thread.h"
#include "ptx/tma.h"

namespace mla {

// The device code of MLA decode on wgmma: three warps that load, two warpgroups that multiply.

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
                    const int arrivals = at < kFull        ? 1
                                         : at < kEmpty     ? 4 * Shape::kPair
                                         : at < kEmpty + 2 ? Shape::kPanels
                                                           : kWarps;
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
        compute_now(group);  // before the wait: a division is 40 instructions
    }
    [[maybe_unused]] FirstPiece<Shape::kExpectedStart> first(a, group);
    cluster_arrive_relaxed();  // the fence publishes the barriers; a single block is a cluster of one
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
            using Scheduler = typename Shape::Scheduler;
            const auto produce = [&](const Scheduler& scheduler, bool any, const PageNumbers& numbers, bool expected) {
                cluster_wait();
                const int rank = Shape::kPair == 2 ? cluster_rank() : 0;
                produce_pages<Shape>(memory, queries, cache, a, scheduler, any, numbers, rank, part, lane, expected);
            };
            if constexpr (Shape::kExpectedStart) {
                Scheduler rest;
                const PageNumbers numbers = first.numbers(a, group, lane, rest);
                produce(rest, first.any, numbers, first.expected);
            } else {
                Scheduler scheduler(a.schedule, group, lane, CutFromLengths());
                DecodePiece piece = {};
                const bool any = scheduler.next(a.schedule, piece);
                produce(scheduler, any, page_numbers(a, piece, lane), false);
            }
        } else {
            cluster_wait();
            if (a.schedule.groups != 0)
                Gather::start<typename Shape::Scheduler>(a, memory.open(), group, row_tile, lane);
        }
    }
}

// Host side of MLA decode on wgmma: how the batch is cut, tensor maps, and the launch.

// Tunables of the kernel files.
constexpr int kChunkSlack = 4;  // pages by which chunks may grow so that equal requests need not be merged
#ifndef FETCHED_BYTES
#error "FETCHED_BYTES is a tunable of the kernel file: bytes of pages that L2 fetches at a time"
#endif
#ifndef EARLY_START
#error "EARLY_START is a tunable of the kernel file: 0 starts after the launch before, 1 beside its end"
#endif

struct LatentTensors {
    Matrix queries, cache;
};

/// Groups of blocks that share the line of pages; 0, one per request, where the workspace is too small. Whether a batch is worth
/// cutting depends on its lengths, which the device knows (DecodeScheduleOf::slack).
inline int choose_pages(int row_tiles, int multiprocessors, long long most) {
    const long long groups =
        std::min<long long>({most, multiprocessors / row_tiles, 511});  // a merge lists so many parts
    return groups < 2 ? 0 : static_cast<int>(groups);
}

/// How the batch is cut, and where parts go; `owner` as in launch_latent_wgmma.
inline void cut_latent(
    LatentArguments& a, int multiprocessors, int slack, void* workspace, size_t workspace_bytes, const void* owner) {
    const int strips = ceil_div(a.seqlen_q * a.heads, 16), batch = a.schedule.batch;
    const long long most = static_cast<long long>(workspace_bytes / (strips * LatentSplits::kStripBytes)) - batch;
    a.schedule.groups = choose_pages(a.row_tiles, std::min(multiprocessors, kCountsOfSet), most);
    const int count_set = a.schedule.groups == 0 ? -1 : part_count_set(owner);
    if (count_set < 0) a.schedule.groups = 0;
    a.shares = {static_cast<uint8_t*>(workspace), strips, count_set};
    a.schedule.slack = slack;
    a.schedule.share(ceil_div(a.schedule.longest, PageSchedule::kTokens));
    a.schedule.expect();
}

/// Launch `a`, which is as DecodeCall makes it, with row_tiles and, where rotary columns lie apart, their map. Returns 0 or what the
/// caller must return. `owner`: what calls at the same time cannot share; the workspace of which `workspace` is a part.
template <class Shape>
int launch_latent_wgmma(
    LatentArguments a, const LatentTensors& tensors, int multiprocessors, void* workspace, size_t workspace_bytes,
    void* queue, const void* owner) {
    const int rows = a.seqlen_q * a.heads, batch = a.schedule.batch;
    cut_latent(a, multiprocessors, kChunkSlack, workspace, workspace_bytes, owner);
    const int groups = a.schedule.groups == 0 ? batch : a.schedule.groups;
    const long long blocks = static_cast<long long>(groups) * a.row_tiles;
    if (blocks > 0x7fffffffLL) return kUnsupportedShape;

    const int box_rows = std::min(rows, Shape::kRows);
    a.query_bytes = box_rows * Shape::kWidth * 2;
    // Few rows would leave room for the next request's, but a product reads all 64 rows, while those would come.
    a.query_buffers = 1;
    TensorMap queries, cache;
    int error = encode_tensor_map(&queries, tensors.queries, box_rows, 64);
    if (error == 0) error = encode_panel_map(&cache, tensors.cache, Shape::kTokens, Shape::kBoxPanels, FETCHED_BYTES);
    if (error == 0 && !Shape::kRotaryApart) {
        error = encode_tensor_map(&a.rotary, tensors.cache, Shape::kTokens / Shape::kPair, 64, FETCHED_BYTES);
    }
    if (error != 0) return error;
    return launch_cluster(
        latent_wgmma<Shape>, static_cast<int>(blocks), Shape::kThreads, Shape::kPair, Shape::kSharedBytes,
        EARLY_START != 0, queue, queries, cache, a);
}

}  // namespace mla
