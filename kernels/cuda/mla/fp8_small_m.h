// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes on wgmma: a warp that copies, two warpgroups that multiply, and the launch.
#pragma once

#include <algorithm>
#include <cstddef>

#include "ceil_div.h"
#include "common/launch_cluster.h"
#include "launch.h"
#include "mla/combine.h"
#include "mla/fp8_producer.h"
#include "mla/fp8_small_m_mainloop.h"
#include "mla/throttle.h"
#include "ptx/cluster.h"
#include "ptx/launch_dependency.h"
#include "ptx/ldst.h"
#include "ptx/thread.h"

#ifndef FETCH_AHEAD
#error "FETCH_AHEAD is a tunable of the kernel file: 1 has blocks of 16 rows ask their first page into L2 early"
#endif
#ifndef THROTTLE
#error \
    "THROTTLE is a tunable of the kernel file: half pages by which a block of 16 rows may be ahead of the average; 0: any"
#endif

#ifndef LAST_MERGES
#error \
    "LAST_MERGES is a tunable of the kernel file: batches of up to so many requests need no second kernel where they have few parts"
#endif

namespace mla {

constexpr int kClusters[] = {8, 4, 3, 2};  // blocks that add up their parts in shared memory
constexpr int kThrottledPages = 12;        // chunks of fewer pages are not kept in step

/// One group of blocks for each chunk of the line of pages, a block of it for each Shape::kRows rows. With kLastMerges no second kernel
/// follows: the last block with a part of a request merges it.
template <class Shape, bool kLastMerges>
__global__ void __launch_bounds__(Shape::kThreads, 1) fp8_small_m(const __grid_constant__ typename Shape::Arguments a) {
    uint8_t* const start = swizzled_shared();
    const Fp8SmallMMemory<Shape> memory = {start, shared_address(start)};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
    constexpr int kWarps = Shape::kConsumers / 32;
    if (threadIdx.x == 0) {
        for (uint32_t page = 0; page < Shape::kPageBarriers; ++page) mbarrier_init(memory.full(page), 2);
        for (int slot = 0; slot < Shape::kSlots; ++slot) mbarrier_init(memory.empty(slot), 4);
        for (int group = 0; group < 2; ++group) mbarrier_init(memory.read(group), 4);
        mbarrier_init(memory.checked(), 1);
        mbarrier_fence_init();
        if constexpr (kLastMerges) memory.cut(false) = memory.cut(true) = CutRequest{};
    }
    using Plan = Fp8SmallMPlan<Shape>;
    Plan::copy_lengths(memory, a);
    __syncthreads();
    const int block = static_cast<int>(blockIdx.x), chunk = block / a.row_tiles, row_tile = block % a.row_tiles;
    if (FETCH_AHEAD != 0 && warp == kWarps + 1) fetch_first_page<Shape>(a, chunk, lane);
    if (warp > kWarps) fetch_inputs(a, Fp8Row::kWidth, static_cast<int>(threadIdx.x) - 32 * (kWarps + 1), 96);
    if (warp < kWarps) {
        take_registers<Shape::kConsumerRegisters>();
        const Fp8SmallMConsumer<Shape> consumer = {{memory, warp / 4, warp % 4, lane}, a, row_tile};
        QueryTerms terms;
        Plan plan(
            memory, a, chunk, lane, false, [&](const DecodePiece& piece) { terms.load(consumer.queries(piece)); });
        grid_dependency_release();
        consumer.template consume<kLastMerges>(plan, terms);
    } else {
        give_registers<Shape::kProducerRegisters>();
        if (warp == kWarps) {
            Fp8Producer<Shape, Fp8SmallMMemory<Shape>> producer = {memory, a, lane};
            PageNumbers numbers(a.block_table, 0, lane);
            Plan plan(memory, a, chunk, lane, true, [&](const DecodePiece& piece) {
                const int* table = producer.table(piece);
                compute_now(table);  // not before the wait
                numbers = PageNumbers(table, producer.pages(piece), lane);
            });
            grid_dependency_release();
            if (a.throttle_set >= 0 && plan.any && plan.scheduler.end - plan.scheduler.begin >= kThrottledPages) {
                unsigned long long* const word = &throttle_words[a.throttle_set];
                Throttle throttle = lane == 0 ? Throttle(word) : Throttle();
                producer.copy_all(plan, numbers, [&] { throttle.step(word, THROTTLE); });
                if (lane == 0) throttle.end(word);
            } else {
                producer.copy_all(plan, numbers, [] {});
            }
        }
        if (a.cluster > 1) cluster_barrier();
    }
    if (a.cluster > 1) cluster_barrier();  // the others have read what they need of this block
}

/// Let the chunks of equal requests of `steps` pages be those of a cluster, if so many clusters run at a time as there are requests: as
/// many as they have, or eight where more would save a block few pages. `most_clusters` of a number of blocks.
template <class Schedule, class Most>
void choose_cluster(Schedule& schedule, int& cluster, int steps, Most most_clusters) {
    constexpr int kMergePages = 3;  // that a block does while a second kernel merges
    for (const int blocks : kClusters) {
        if (blocks > schedule.shares || (blocks < schedule.shares && blocks < kClusters[0])) continue;
        if (ceil_div(steps, blocks) > ceil_div(steps, schedule.shares) + kMergePages) continue;
        const int clusters = most_clusters(blocks);
        if (clusters < schedule.batch) continue;
        schedule.groups = std::min(schedule.groups / blocks, clusters) * blocks;
        schedule.share(steps, blocks);
        const int even = ceil_div(schedule.batch * (steps + Schedule::kStartSteps), schedule.groups);
        schedule.slack = std::max(schedule.slack, schedule.full_chunk + Schedule::kStartSteps - even);
        schedule.gathered = 1;
        cluster = blocks;
        return;
    }
}

/// Launch `a`, which is as DecodeCall makes it, and the merge where the batch is cut. Chunks of the line may grow by `slack` pages so
/// that equal requests are not cut; `early` lets kernels start beside the end of the one before. Where a batch of up to LAST_MERGES
/// requests has few parts, `merging` runs alone, a kernel with the same needs whose blocks merge. Returns 0 or what the caller must
/// return.
template <class Shape>
int launch_fp8_wgmma(
    void (*kernel)(typename Shape::Arguments), typename Shape::Arguments a, int slack, bool early, void* workspace,
    size_t workspace_bytes, void* queue, void (*merging)(typename Shape::Arguments) = nullptr) {
    int device = 0, multiprocessors = 0;
    int status = static_cast<int>(cudaGetDevice(&device));
    if (status == 0) {
        status = static_cast<int>(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    }
    if (status != 0) return status;
    const int rows = a.seqlen_q * a.heads, batch = a.schedule.batch;
    a.row_tiles = rows / Shape::kRows;
    const long long most = std::min<long long>(
        SplitWorkspace::capacity(workspace_bytes, rows, Fp8Row::kLatent) - batch, multiprocessors / a.row_tiles);
    a.schedule.groups = most < 2 ? 0 : static_cast<int>(most);
    a.schedule.slack = slack;
    a.schedule.share(a.max_blocks);
    a.cluster = 1;
    a.throttle_set = a.count_set = -1;
    if constexpr (Shape::kRows == 16) {
        if (a.row_tiles == 1) {
            const auto most_clusters = [&](int blocks) {
                return clusters_at_a_time<Shape>(kernel, device, Shape::kThreads, blocks, Shape::kSharedBytes);
            };
            choose_cluster(a.schedule, a.cluster, a.max_blocks, most_clusters);
        }
        // With few requests a block starts too late to work anything out before its wait ends.
        a.guess = a.schedule.groups / batch + 1 < kLongList;
        if (THROTTLE != 0 && a.schedule.groups > 0) a.throttle_set = part_count_set(workspace);
        // Many parts of a request are merged by many blocks, and those of many requests by blocks that have no work before.
        const bool few = batch <= LAST_MERGES && (a.cluster > 1 || a.schedule.groups / batch + 1 < kLongList);
        if (few && a.schedule.groups > 0 && a.schedule.groups * a.row_tiles <= kCountsOfSet)
            a.count_set = part_count_set(workspace);
        if (a.count_set >= 0) kernel = merging;
    }
    const int groups = a.schedule.groups == 0 ? batch : a.schedule.groups;
    if (a.schedule.groups != 0) {
        a.parts = SplitWorkspace::at(workspace, PageSchedule::part_count(groups, batch), rows, Fp8Row::kLatent);
    }
    const long long blocks = static_cast<long long>(groups) * a.row_tiles;
    if (blocks > 0x7fffffffLL) return kUnsupportedShape;
    const int error = launch_cluster(
        kernel, static_cast<int>(blocks), Shape::kThreads, a.cluster, Shape::kSharedBytes, early, queue, a);
    if (error != 0 || a.schedule.groups == 0 || a.count_set >= 0) return error;
    PageSchedule schedule{};  // the merge has time for divisions
    schedule.seqlens = a.schedule.seqlens;
    schedule.batch = batch;
    schedule.longest = a.schedule.longest;
    schedule.groups = groups;
    schedule.slack = a.schedule.slack;
    schedule.shares = a.schedule.shares;
    schedule.gathered = a.schedule.gathered;
    return launch_latent_merge({schedule, a.parts, a.o, a.lse, a.seqlen_q, a.heads, 1}, multiprocessors, early, queue);
}

}  // namespace mla
