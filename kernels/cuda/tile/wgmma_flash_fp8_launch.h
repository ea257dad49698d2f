// SPDX-License-Identifier: MIT
// Host side of attention forward from e4m3 on wgmma (tile/wgmma_flash_fp8.h): tensor maps, scales, order of tiles, grid.
#pragma once

#include <algorithm>
#include <cstddef>

#include "ceil_div.h"
#include "launch.h"
#include "status.h"
#include "tile/head_tensor_map.h"
#include "tile/launch_cluster.h"
#include "tile/transpose_values.h"
#include "tile/wgmma_flash_fp8.h"

#if !defined(EARLY_START)
#define EARLY_START 1   // a tunable of the kernel file
#endif

/// How blocks come by their tiles.
enum class Fp8TileOrder {
    kPersistent,   // as many blocks as multiprocessors, equal shares: causal tiles in pairs of a long and a short one
    kCount,        // as many blocks, whoever is free takes the longest tile left: four more bytes of workspace, else kPersistent
    kOwnBlocks,    // a block per tile, the longest first: the hardware balances, but tiles no longer overlap
};

/// One call of kernel.h.
struct Fp8FlashArguments {
    const void *q, *k, *v;
    const float *q_scale, *k_scale, *v_scale;
    void* o;
    float* lse;
    int batch, seqlen_q, seqlen_k, heads_q, heads_k, scales;
    bool causal;
    float scale;   // softmax_scale * log2(e)
    void* workspace;   // for transposed values
    size_t workspace_bytes;

    static constexpr int kPerTensor = 0, kPerHead = 1, kPerBlock = 2;

    /// The scales of an operand of so many tokens and heads.
    ScaleGrid grid(int tokens, int heads) const {
        if (scales == kPerTensor) return {0, 0, 0};
        if (scales == kPerHead) return {heads, 0, 1};
        return {ceil_div(tokens, kScaleBlock) * heads, heads, 1};
    }
};

/// Launch one instance. Returns 0 or the runtime's or the driver's error.
template <class Shape>
int launch_fp8_flash(const Fp8FlashArguments& a, Fp8TileOrder order, int multiprocessors, void* queue) {
    // Bytes travel in pairs.
    const HeadTensor queries = {a.q, a.batch, a.seqlen_q, a.heads_q, Shape::kHeadDim / 2};
    const HeadTensor keys = {a.k, a.batch, a.seqlen_k, a.heads_k, Shape::kHeadDim / 2};
    const HeadTensor values = {a.v, a.batch, a.seqlen_k, a.heads_k, Shape::kHeadDim / 2};
    TensorMap query_map, key_map, value_map;
    int error = encode_head_tensor_map(&query_map, queries, Shape::kQueries);
    if (error == 0) error = encode_head_tensor_map(&key_map, keys, Shape::kKeys);
    unsigned* count = nullptr;
    if (error == 0 && Shape::kFirstPass) {
        ValueTransposition t = {
            static_cast<const uint8_t*>(a.v), static_cast<uint8_t*>(a.workspace), a.batch, a.seqlen_k, a.heads_k,
            Shape::kHeadDim, nullptr};
        if (order == Fp8TileOrder::kCount && a.workspace_bytes >= t.bytes() + sizeof(unsigned)) {
            t.cleared = count = reinterpret_cast<unsigned*>(t.target + t.bytes());
        }
        const Matrix rows = {a.workspace, t.rows(), t.row(), 1};
        error = encode_tensor_map(&value_map, rows, Shape::kHeadDim, Shape::kValueRow);
        if (error == 0) error = launch_value_transposition(t, queue);
    } else if (error == 0) {
        error = encode_head_tensor_map(&value_map, values, Shape::kKeys);
    }
    if (error != 0) return error;
    if (order == Fp8TileOrder::kCount && count == nullptr) order = Fp8TileOrder::kPersistent;

    Fp8FlashProblem p{};
    p.o = static_cast<uint8_t*>(a.o);
    p.lse = a.lse;
    p.query_scales = a.q_scale;
    p.key_scales = a.k_scale;
    p.value_scales = a.v_scale;
    p.query_grid = a.grid(a.seqlen_q, a.heads_q);
    p.key_grid = a.grid(a.seqlen_k, a.heads_k);
    p.batch = a.batch;
    p.queries = a.seqlen_q;
    p.keys = a.seqlen_k;
    p.heads = a.heads_q;
    p.heads_per_key_head = a.heads_q / a.heads_k;
    p.key_heads = a.heads_k;
    p.causal = a.causal;
    p.scale = a.scale;
    p.tiles = ceil_div(a.seqlen_q, Shape::kQueries);
    p.half = ceil_div(p.tiles, 2);
    const long long heads = static_cast<long long>(a.batch) * a.heads_q;
    p.pairs = a.causal && order == Fp8TileOrder::kPersistent;
    const long long units = heads * (p.pairs ? p.half : p.tiles);
    p.section = 1;
    if (a.causal && !p.pairs) {
        // So many heads that their keys and values stay in L2, so that all their long tiles come before their short ones.
        constexpr long long kRoom = 32 << 20;
        const long long bytes = 2LL * a.seqlen_k * Shape::kHeadDim;
        p.section = static_cast<int>(std::min(heads, std::max(1LL, kRoom / bytes) * p.heads_per_key_head));
    }
    if (units > 0x7fffffffLL || static_cast<long long>(p.section) * p.tiles > 0x7fffffffLL) return kUnsupportedShape;
    p.in_section = p.section * p.tiles;
    p.units = static_cast<int>(units);
    const int blocks = order == Fp8TileOrder::kOwnBlocks ? p.units : std::min(p.units, multiprocessors);
    p.taken = count;
    return launch_cluster(
        wgmma_flash_fp8<Shape>, blocks, Shape::kThreads, 1, Shape::kSharedBytes, EARLY_START != 0, queue, query_map, key_map,
        value_map, p);
}
