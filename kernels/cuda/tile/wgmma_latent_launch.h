// SPDX-License-Identifier: MIT
// Host side of MLA decode on wgmma: how the batch is cut, tensor maps, and the launch.
#pragma once

#include <algorithm>
#include <cstddef>

#include "launch.h"
#include "tile/latent_parts.h"
#include "tile/launch_cluster.h"
#include "tile/tensor_map.h"
#include "tile/wgmma_latent.h"

// Tunables of the kernel files.
#ifndef SLACK
#define SLACK 4  // pages by which chunks may grow so that equal requests need not be merged
#endif
#ifndef FETCHED_BYTES
#define FETCHED_BYTES 128  // that L2 fetches of pages at a time: a panel's row, of which a token's 1152 bytes are nine
#endif
#ifndef EARLY_START
#define EARLY_START 1  // kernels start beside the end of the one before
#endif

struct LatentTensors {
    Matrix queries, cache;
};

/// Groups of blocks that share the line of pages; 0, one per request, where the workspace is too small. Whether a batch is worth
/// cutting depends on its lengths, which the device knows (DecodeScheduleOf::slack).
inline int choose_pages(int row_tiles, int multiprocessors, long long most) {
    const long long groups = std::min<long long>({most, multiprocessors / row_tiles, 511});  // a merge lists so many parts
    return groups < 2 ? 0 : static_cast<int>(groups);
}

/// How the batch is cut, and where parts go; `owner` as in launch_latent_wgmma.
inline void cut_latent(
    LatentArguments& a, int multiprocessors, int slack, void* workspace, size_t workspace_bytes, const void* owner) {
    const int strips = ceil_div(a.seqlen_q * a.heads, 16), batch = a.schedule.batch;
    const long long most = static_cast<long long>(workspace_bytes / (strips * LatentParts::kStripBytes)) - batch;
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
    cut_latent(a, multiprocessors, SLACK, workspace, workspace_bytes, owner);
    const int groups = a.schedule.groups == 0 ? batch : a.schedule.groups;
    const long long blocks = static_cast<long long>(groups) * a.row_tiles;
    if (blocks > 0x7fffffffLL) return kUnsupportedShape;

    const int box_rows = std::min(rows, Shape::kRows);
    a.query_bytes = box_rows * Shape::kWidth * 2;
    a.query_buffers = box_rows * 128 <= Shape::kSecondQuery ? 2 : 1;
    TensorMap queries, cache;
    int error = encode_tensor_map(&queries, tensors.queries, box_rows, 64);
    if (error == 0) error = encode_panel_map(&cache, tensors.cache, Shape::kTokens, Shape::kBoxPanels, FETCHED_BYTES);
    if (error == 0 && !Shape::kRotaryApart) {
        error = encode_tensor_map(&a.rotary, tensors.cache, Shape::kTokens / Shape::kPair, 64, FETCHED_BYTES);
    }
    if (error != 0) return error;
    return launch_cluster(
        latent_wgmma<Shape>, static_cast<int>(blocks), Shape::kThreads, Shape::kPair, Shape::kSharedBytes, EARLY_START != 0,
        queue, queries, cache, a);
}
