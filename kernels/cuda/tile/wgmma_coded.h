// SPDX-License-Identifier: MIT
// MLA decode over e4m3 codes on wgmma: a warp that copies, two warpgroups that multiply, and the launch.
#pragma once

#include <algorithm>
#include <cstddef>

#include "ceil_div.h"
#include "launch.h"
#include "ptx/grid_dependency.h"
#include "ptx/prefetch.h"
#include "ptx/shared_address.h"
#include "ptx/warp_uniform.h"
#include "ptx/warpgroup_registers.h"
#include "tile/latent_merge.h"
#include "tile/launch_cluster.h"
#include "tile/wgmma_coded_consume.h"
#include "tile/wgmma_coded_produce.h"

/// One group of blocks for each chunk of the line of pages, a block of it for each Shape::kRows rows.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) coded_pages(const __grid_constant__ typename Shape::Arguments a) {
    uint8_t* const start = swizzled_shared();
    const CodedMemory<Shape> memory = {start, shared_address(start)};
    const int warp = warp_uniform(static_cast<int>(threadIdx.x) / 32), lane = static_cast<int>(threadIdx.x) % 32;
    constexpr int kWarps = Shape::kConsumers / 32;
    if (threadIdx.x == 0) {
        for (int slot = 0; slot < Shape::kSlots; ++slot) {
            mbarrier_init(memory.full(slot), 1);
            mbarrier_init(memory.empty(slot), 4);
        }
        for (int group = 0; group < 2; ++group) mbarrier_init(memory.read(group), 4);
        mbarrier_fence_init();
    }
    __syncthreads();
    if (warp > kWarps) fetch_inputs(a, CodedRow::kWidth, static_cast<int>(threadIdx.x) - 32 * (kWarps + 1), 96);
    grid_dependency_wait();
    grid_dependency_release();
    const int block = static_cast<int>(blockIdx.x), chunk = block / a.row_tiles, row_tile = block % a.row_tiles;
    if (warp < kWarps) {
        take_registers<Shape::kConsumerRegisters>();
        const CodedConsumer<Shape> consumer = {{memory, warp / 4, warp % 4, lane}, a, row_tile};
        consumer.consume();
    } else {
        give_registers<Shape::kProducerRegisters>();
        if (warp == kWarps) produce_codes<Shape>(memory, a, chunk, lane);
    }
}

/// Launch `a`, of which all but row_tiles, groups and the workspace is set, and the merge where the batch is cut. Chunks of the
/// line may grow by `slack` pages so that equal requests are not cut; `early` lets kernels start beside the end of the one
/// before. Returns 0 or what the caller must return.
template <class Shape>
int launch_coded_pages(
    void (*kernel)(typename Shape::Arguments), typename Shape::Arguments a, int slack, bool early, void* workspace,
    size_t workspace_bytes, void* queue) {
    int device = 0, multiprocessors = 0;
    int status = static_cast<int>(cudaGetDevice(&device));
    if (status == 0) {
        status = static_cast<int>(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    }
    if (status != 0) return status;
    const int rows = a.seqlen_q * a.heads, batch = a.schedule.batch;
    a.row_tiles = rows / Shape::kRows;
    const long long most = std::min<long long>(
        SplitWorkspace::capacity(workspace_bytes, rows, CodedRow::kLatent) - batch, multiprocessors / a.row_tiles);
    a.schedule.groups = most < 2 ? 0 : static_cast<int>(most);
    a.schedule.slack = slack;
    a.schedule.shares = PageSchedule::shares_of(a.schedule.groups, batch, a.max_blocks);
    const int groups = a.schedule.groups == 0 ? batch : a.schedule.groups;
    if (a.schedule.groups != 0) {
        a.parts = SplitWorkspace::at(workspace, PageSchedule::part_count(groups, batch), rows, CodedRow::kLatent);
    }
    const long long blocks = static_cast<long long>(groups) * a.row_tiles;
    if (blocks > 0x7fffffffLL) return kUnsupportedShape;
    const int error = launch_cluster(
        kernel, static_cast<int>(blocks), Shape::kThreads, 1, Shape::kSharedBytes, early, queue, a);
    if (error != 0 || a.schedule.groups == 0) return error;
    return launch_latent_merge({a.schedule, a.parts, a.o, a.lse, a.seqlen_q, a.heads, 1}, multiprocessors, early, queue);
}
