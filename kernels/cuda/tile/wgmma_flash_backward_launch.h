// SPDX-License-Identifier: MIT
// Host side of attention backward on wgmma (tile/wgmma_flash_backward.h): workspace, tensor maps, order of tiles, launches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ceil_div.h"
#include "launch.h"
#include "online_softmax.h"
#include "status.h"
#include "tile/backward_call.h"
#include "tile/head_tensor_map.h"
#include "tile/launch_cluster.h"
#include "tile/wgmma_flash_backward.h"
#include "tile/wgmma_flash_backward_rows.h"

#if !defined(EARLY_START)
#define EARLY_START 1   // a tunable of the kernel file
#endif

#if !defined(TEND_SUMS)
#define TEND_SUMS 1
#endif
#if !defined(SECTION_ROOM)
#define SECTION_ROOM 16   // MB
#endif

/// Lay the workspace out: sums, shifts, deltas, turns, counts. Returns false if it is too small.
inline bool place_workspace(BackwardProblem* p, const BackwardCall& a, int head_dim) {
    const size_t lines = static_cast<size_t>(a.batch) * a.heads * p->rows;
    const uintptr_t start = (reinterpret_cast<uintptr_t>(a.workspace) + 127) / 128 * 128;
    p->sums = reinterpret_cast<float*>(start);
    p->shifts = p->sums + lines * head_dim;
    p->deltas = p->shifts + lines;
    p->turns = reinterpret_cast<int*>(p->deltas + lines);
    p->next = p->turns + lines / 16;
    p->chore = p->next + 1;
    p->added = p->chore + 1;
    p->cleared = p->added + static_cast<size_t>(a.batch) * a.key_heads;
    const uintptr_t end = reinterpret_cast<uintptr_t>(p->cleared + static_cast<size_t>(a.batch) * a.key_heads);
    return a.workspace != nullptr && end - reinterpret_cast<uintptr_t>(a.workspace) <= a.workspace_bytes;
}

/// Launch the kernels of one instance. Returns 0, a KernelStatus, or the runtime's or the driver's error.
template <class Shape, bool kInOrder, bool kStaggered>
int launch_flash_backward(const BackwardCall& a, int multiprocessors, void* queue) {
    using Element = typename Shape::Element;
    constexpr int kHeadDim = Shape::kHeadDim;
    BackwardProblem p{};
    p.dq = static_cast<uint8_t*>(a.dq);
    p.dk = static_cast<uint8_t*>(a.dk);
    p.dv = static_cast<uint8_t*>(a.dv);
    p.batch = a.batch;
    p.queries = a.queries;
    p.keys = a.keys;
    p.heads = a.heads;
    p.key_heads = a.key_heads;
    p.group = a.heads / a.key_heads;
    p.rows = ceil_div(a.queries, 128) * 128;
    p.causal = a.causal;
    p.softmax_scale = a.softmax_scale;
    p.scale = a.softmax_scale * kLog2E;
    p.tiles = ceil_div(a.keys, Shape::kKeys);

    // While a section is worked on, dq of the one before is written, which should be complete by then. Causal sections take
    // long tiles first and end with short ones: more heads, so that blocks end together, and as many as L2 holds Q, dO and sums
    // of. All of a size, since blocks could not end together at the end of a short one.
    constexpr long long kRoom = SECTION_ROOM * (1LL << 20);
    const long long heads = static_cast<long long>(a.batch) * a.key_heads, bytes = 8LL * p.rows * kHeadDim;
    const long long least = ceil_div((p.causal ? 8LL : 3LL) * multiprocessors, 2LL * p.tiles);
    const long long wanted = std::min(heads, std::max(least, p.causal ? kRoom / bytes : 1LL));
    p.sections = static_cast<int>((2 * heads + wanted) / (2 * wanted));
    p.section = static_cast<int>(heads / p.sections);
    p.longer = static_cast<int>(heads % p.sections);
    p.pieces = p.rows / 64 * p.group;
    p.tends = TEND_SUMS != 0 && p.sections > 1;
    const long long lines = static_cast<long long>(a.batch) * a.heads * p.rows;
    const long long section_heads = p.section + (p.longer > 0), section_tasks = section_heads * p.tiles;
    const long long tasks = p.sections * section_tasks, pieces = p.sections * section_heads * p.pieces;
    // Every block takes one number too many.
    if (std::max(tasks, pieces) > 0x7fffff00LL || lines > 0x7fffffffLL) return kUnsupportedShape;
    p.tasks = static_cast<int>(tasks);
    p.section_tasks = static_cast<int>(section_tasks);
    p.section_pieces = static_cast<int>(section_heads * p.pieces);
    if (!place_workspace(&p, a, kHeadDim)) return kWorkspaceTooSmall;

    TensorMap queries, out, keys, values;
    int error = encode_head_tensor_map(&queries, {a.q, a.batch, a.queries, a.heads, kHeadDim}, Shape::kQueries);
    if (error == 0) error = encode_head_tensor_map(&out, {a.dout, a.batch, a.queries, a.heads, kHeadDim}, Shape::kQueries);
    if (error == 0) error = encode_head_tensor_map(&keys, {a.k, a.batch, a.keys, a.key_heads, kHeadDim}, Shape::kKeys);
    if (error == 0) error = encode_head_tensor_map(&values, {a.v, a.batch, a.keys, a.key_heads, kHeadDim}, Shape::kKeys);
    if (error != 0) return error;

    constexpr bool kEarly = EARLY_START != 0;
    // The main kernel clears sums and writes dq itself, but for the first and the last section.
    const int all = static_cast<int>(heads), zeroed = (p.tends ? p.first_head(1) : all) * p.group;
    const int finished = (p.tends ? p.first_head(p.sections - 1) : 0) * p.group;
    const BackwardRows rows = {static_cast<const uint8_t*>(a.o), static_cast<const uint8_t*>(a.dout), a.lse};
    error = launch_cluster(prepare_rows<Element, kHeadDim>, static_cast<int>(lines / kPrepareRows), kPrepareThreads, 1, 0,
                           kEarly, queue, rows, p, zeroed);
    if (error != 0) return error;
    error = launch_cluster(wgmma_flash_backward<Shape, kInOrder, kStaggered>, multiprocessors, Shape::kThreads, 1,
                           Shape::kSharedBytes, kEarly, queue, queries, out, keys, values, p);
    if (error != 0) return error;
    return launch_cluster(finish_rows<Element, kHeadDim>, (all * p.group - finished) * (p.rows / 128), 256, 1, 0, kEarly, queue,
                          p, finished);
}
