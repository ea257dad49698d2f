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

#if !defined(TENDED_KEYS)
#define TENDED_KEYS 2048   // a tunable: keys that a query sees, at least, for the main kernel to write dq
#endif

/// Lay the workspace out: sums, shifts, deltas, turns, counts. Returns false if it is too small.
inline bool place_workspace(BackwardProblem* p, const BackwardCall& a, int head_dim) {
    const size_t lines = static_cast<size_t>(a.batch) * a.heads * p->rows;
    const uintptr_t start = (reinterpret_cast<uintptr_t>(a.workspace) + 127) / 128 * 128;
    p->sums = reinterpret_cast<float*>(start);
    p->shifts = p->sums + lines * head_dim;
    p->deltas = p->shifts + lines;
    p->turns = reinterpret_cast<int*>(p->deltas + lines);
    p->next = p->turns + lines / 64;
    p->chore = p->next + 1;
    p->added = p->chore + 1;
    p->cleared = p->added + static_cast<size_t>(a.batch) * a.key_heads;
    const uintptr_t end = reinterpret_cast<uintptr_t>(p->cleared + static_cast<size_t>(a.batch) * a.key_heads);
    return a.workspace != nullptr && end - reinterpret_cast<uintptr_t>(a.workspace) <= a.workspace_bytes;
}

/// Launch the kernels of one instance. Returns 0, a KernelStatus, or the runtime's or the driver's error.
template <class Shape, Walk kWalk>
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
    const long long lines = static_cast<long long>(a.batch) * a.heads * p.rows;
    const long long tasks = static_cast<long long>(a.batch) * a.key_heads * p.tiles, chores = lines / 32;   // at most, of both
    // Every block takes one number too many.
    if (std::max(tasks, chores) > 0x7fffff00LL || lines > 0x7fffffffLL) return kUnsupportedShape;

    // A section gives every block a tile. At the end blocks end together if they take causal tiles of enough heads, the long
    // ones first. Where all tiles of a head take turns, blocks that end together begin with the same key tile of different
    // heads: of as many as there are blocks for. The last section's causal tiles take turns downwards.
    constexpr bool kInOrder = kWalk == Walk::kUp;
    const int all = a.batch * a.key_heads, round = ceil_div(multiprocessors, p.tiles);
    const int enough = p.causal ? ceil_div(2 * multiprocessors, p.tiles) : round;
    p.section = std::min(all, kInOrder && !p.causal ? std::max(1, multiprocessors / p.tiles) : round);
    p.sections = 1 + std::max(0, all - enough) / p.section;
    p.last = all - p.first_head(p.sections - 1);
    // Causal tiles begin at different times anyway; of some lengths, they were faster without.
    p.around = !a.causal || kHeadDim == 64 || a.keys <= 1024 || a.keys > 4096;
    p.down = kInOrder && p.causal ? all - p.last : all;
    p.pieces = p.rows / 64 * p.group;
    p.tasks = static_cast<int>(tasks);
    // With three sections or more the main kernel clears all sums but those of the first two, and writes dq of all but the last
    // unless it takes too little time per query for one warp to keep up.
    const int early = p.first_head(2), late = p.last;
    const bool many = p.sections > 2;
    p.tends = many && (p.causal ? a.keys / 2 : a.keys) >= TENDED_KEYS;
    p.chores = (p.tends ? all - early + all - late : many ? all - early : 0) * p.pieces;
    if (!place_workspace(&p, a, kHeadDim)) return kWorkspaceTooSmall;

    TensorMap queries, out, keys, values;
    int error = encode_head_tensor_map(&queries, {a.q, a.batch, a.queries, a.heads, kHeadDim}, Shape::kQueries);
    if (error == 0) error = encode_head_tensor_map(&out, {a.dout, a.batch, a.queries, a.heads, kHeadDim}, Shape::kQueries);
    if (error == 0) error = encode_head_tensor_map(&keys, {a.k, a.batch, a.keys, a.key_heads, kHeadDim}, Shape::kKeys);
    if (error == 0) error = encode_head_tensor_map(&values, {a.v, a.batch, a.keys, a.key_heads, kHeadDim}, Shape::kKeys);
    if (error != 0) return error;

    constexpr bool kEarly = EARLY_START != 0;
    const int zeroed = (p.chores > 0 ? early : all) * p.group, finished = (p.tends ? all - late : 0) * p.group;
    const BackwardRows rows = {static_cast<const uint8_t*>(a.o), static_cast<const uint8_t*>(a.dout), a.lse};
    error = launch_cluster(prepare_rows<Element, kHeadDim>, static_cast<int>(lines / kPrepareRows), kPrepareThreads, 1, 0,
                           kEarly, queue, rows, p, zeroed);
    if (error != 0) return error;
    error = launch_cluster(wgmma_flash_backward<Shape, kWalk>, multiprocessors, Shape::kThreads, 1,
                           Shape::kSharedBytes, kEarly, queue, queries, out, keys, values, p);
    if (error != 0) return error;
    return launch_cluster(finish_rows<Element, kHeadDim>, (all * p.group - finished) * (p.rows / 128), 256, 1, 0, kEarly, queue,
                          p, finished);
}
