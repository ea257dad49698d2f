// SPDX-License-Identifier: MIT
// Host side of MLA decode over e4m3 codes: how the batch is cut, and the launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "launch.h"
#include "ptx/mma_16bit.h"
#include "tile/coded_latent.h"
#include "tile/launch_cluster.h"

/// What a cut costs, in tokens of one block: starting a group, and the second kernel.
struct CutCost {
    double start, merge;
};

/// Groups of blocks that share the line of tokens, or 0 for one group per request. `longest` is the steps a request may
/// have, `starts` what the line counts for each request, `slots` the blocks that run at a time, `most` the workspace's
/// limit; costs are in steps.
inline int cut_into_groups(
    long long batch, int longest, int starts, long long row_tiles, long long slots, long long most, CutCost cost) {
    const long long groups = most < slots / row_tiles ? most : slots / row_tiles;
    if (groups < 2) return 0;
    const double rounds = static_cast<double>(ceil_div<long long>(batch * row_tiles, slots));
    const double whole = rounds * (cost.start + longest);
    const long long line = batch * (longest + starts);
    const double cut = cost.start + static_cast<double>(ceil_div<long long>(line, groups)) + cost.merge;
    return cut < whole ? static_cast<int>(groups) : 0;
}

/// Launch `a`, of which all but row_tiles, groups and the workspace is set, and the merge where the batch is cut; `early` lets
/// kernels start beside the end of the one before. Returns 0 or what the caller must return.
template <class Tile>
int launch_coded(
    typename Tile::Arguments a, CutCost cost, bool early, void* workspace, size_t workspace_bytes, void* queue) {
    const auto kernel = coded_latent<Tile>;
    int device = 0, multiprocessors = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (status == cudaSuccess) {
        status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
    }
    if (status != cudaSuccess) return status;

    using Schedule = typename Tile::Schedule;
    const int rows = a.seqlen_q * a.heads, batch = a.schedule.batch;
    a.row_tiles = rows / Tile::kRows;
    const long long most = SplitWorkspace::capacity(workspace_bytes, rows, CodedRow::kLatent) - batch;
    a.schedule.groups = cut_into_groups(
        batch, a.max_blocks * (CodedRow::kPage / Tile::kTokens), Schedule::kStartSteps, a.row_tiles,
        multiprocessors, most,
        {cost.start / Tile::kTokens, cost.merge / Tile::kTokens});
    const int groups = a.schedule.groups == 0 ? batch : a.schedule.groups;
    if (a.schedule.groups != 0) {
        a.parts = SplitWorkspace::at(workspace, Schedule::part_count(groups, batch), rows, CodedRow::kLatent);
    }
    const long long blocks = static_cast<long long>(groups) * a.row_tiles;
    if (blocks > 0x7fffffffLL) return kUnsupportedShape;
    CombineArguments<DecodeParts<Schedule>> merge = {
        {a.schedule, rows}, a.parts, a.o, a.lse, static_cast<long long>(batch) * rows, a.seqlen_q, a.heads, 1};
    const int merge_blocks = share_segments<CodedRow::kLatent>(merge, groups / batch + 1);
    const auto combine = combine_coded<Tile>;
    if constexpr (Tile::kBulk) {
        const int error = launch_cluster(
            kernel, static_cast<int>(blocks), Tile::kThreads, 1, Tile::kSharedBytes, early, queue, a);
        if (error != 0 || a.schedule.groups == 0) return error;
        return launch_cluster(combine, merge_blocks, kCombineWarps * 32, 1, 0, early, queue, merge);
    } else {
        LAUNCH(kernel, dim3(static_cast<unsigned>(blocks)), dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
        const int launched = LAUNCH_STATUS();
        if (launched != kOk || a.schedule.groups == 0) return launched;
        LAUNCH(combine, dim3(static_cast<unsigned>(merge_blocks)), dim3(kCombineWarps * 32), 0, queue)(merge);
        return LAUNCH_STATUS();
    }
}
