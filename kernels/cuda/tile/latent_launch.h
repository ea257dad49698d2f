// SPDX-License-Identifier: MIT
// Host side of MLA decode on mma.sync: tile shapes, how the batch is cut, and the launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "launch.h"
#include "ptx/mma_16bit.h"
#include "tile/combine_splits.h"
#include "tile/latent_decode.h"
#include "tile/plan.h"

// Tunables of the kernel files; the first choices stand in mla_decode/mma_sync.cu.
#ifndef ROWS16_STAGES
#define ROWS16_STAGES 5
#endif
#ifndef ROWS16_BLOCKS
#define ROWS16_BLOCKS 1
#endif
#ifndef ROWS32_STAGES
#define ROWS32_STAGES 4
#endif

// The oldest architecture of this build chooses the tiles: nvcc defines the list for host and device passes alike.
constexpr int kLatentArchitectures[] = {__CUDA_ARCH_LIST__};
constexpr bool kLatentHopper = kLatentArchitectures[0] >= 900;

using LatentRows16 = DecodeTile<1, 1, 2, kLatentHopper ? ROWS16_STAGES : 2, true, kLatentHopper ? ROWS16_BLOCKS : 1>;
using LatentRows32 = DecodeTile<2, 1, 2, kLatentHopper ? ROWS32_STAGES : 2, true, 1>;
using LatentRows64 = DecodeTile<4, 2, 1, 3, false, 1>;  // Hopper only

/// Launch `a`, of which all but row_tiles, groups and the workspace is set, and the merge where the batch is cut.
/// Returns 0 or what the caller must return.
template <typename Tile>
int launch_latent(DecodeArguments a, void* workspace, size_t workspace_bytes, void* queue) {
    static_assert(kLatentHopper || Tile::kSharedBytes <= 99 * 1024, "Ada offers a block 99 KB");
    static_assert(Tile::kSharedBytes <= 227 * 1024, "Hopper offers a block 227 KB");
    const auto kernel = latent_decode<Tile>;
    int status = 0;
    const int multiprocessors = ::multiprocessors(status);
    if (status == 0) {
        status = static_cast<int>(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes));
    }
    if (status != 0) return status;

    const int rows = a.seqlen_q * a.heads;  // of a request
    const int batch = a.schedule.batch;
    a.row_tiles = rows / Tile::kRows;
    const long long most = SplitWorkspace::capacity(workspace_bytes, rows, kLatent) - batch;
    a.schedule.groups = choose_groups(
        batch, a.max_blocks * (kPage / Tile::kTokens), DecodeSchedule::kStartSteps, a.row_tiles,
        static_cast<long long>(multiprocessors) * Tile::kBlocks, most, {4.0, 4.0});
    const int groups = a.schedule.groups == 0 ? batch : a.schedule.groups;
    if (a.schedule.groups != 0) {
        a.parts = SplitWorkspace::at(workspace, DecodeSchedule::part_count(groups, batch), rows, kLatent);
    }
    const long long blocks = static_cast<long long>(groups) * a.row_tiles;
    if (blocks > 0x7fffffffLL) return kUnsupportedShape;
    LAUNCH(kernel, dim3(static_cast<unsigned>(blocks)), dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
    const int launched = LAUNCH_STATUS();
    if (launched != kOk || a.schedule.groups == 0) return launched;
    const CombineArguments<DecodeParts<>> merge = {
        {a.schedule, rows}, a.parts, a.o, a.lse, static_cast<long long>(batch) * rows, a.seqlen_q, a.heads, 1};
    return launch_combine<Bf16, kLatent>(merge, groups / batch + 1, queue);
}
