// SPDX-License-Identifier: MIT
// Host side of MLA decode over e4m3 codes: how the batch is cut, and the launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "launch.h"
#include "ptx/mma_16bit.h"
#include "tile/coded_latent.h"
#include "tile/plan.h"

/// Launch `a`, of which all but row_tiles, groups and the workspace is set, and the merge where the batch is cut. Returns 0 or
/// what the caller must return.
template <class Tile>
int launch_coded(typename Tile::Arguments a, GroupCost cost, void* workspace, size_t workspace_bytes, void* queue) {
    const auto kernel = coded_latent<Tile>;
    int status = 0;
    const int multiprocessors = ::multiprocessors(status);
    if (status == 0) {
        status = static_cast<int>(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes));
    }
    if (status != 0) return status;

    using Schedule = typename Tile::Schedule;
    const int rows = a.seqlen_q * a.heads, batch = a.schedule.batch;
    a.row_tiles = rows / Tile::kRows;
    const long long most = SplitWorkspace::capacity(workspace_bytes, rows, CodedRow::kLatent) - batch;
    a.schedule.groups = choose_groups(
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
    LAUNCH(kernel, dim3(static_cast<unsigned>(blocks)), dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
    const int launched = LAUNCH_STATUS();
    if (launched != kOk || a.schedule.groups == 0) return launched;
    LAUNCH(combine, dim3(static_cast<unsigned>(merge_blocks)), dim3(kCombineWarps * 32), 0, queue)(merge);
    return LAUNCH_STATUS();
}
