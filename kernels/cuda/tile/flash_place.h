// SPDX-License-Identifier: MIT
// Where a block of the mma.sync attention forward works: arguments, rows of a tile, steps of keys.
#pragma once

#include <cstddef>
#include <cstdint>

#include "split_kv.h"

struct ForwardArguments {
    const uint8_t* q;  // [batch, seqlen_q, heads_q, head_dim]
    const uint8_t* k;  // [batch, seqlen_k, heads_k, head_dim]
    const uint8_t* v;
    uint8_t* o;
    float* lse;            // [batch, heads_q, seqlen_q]
    SplitWorkspace parts;  // used where splits > 1
    int batch, seqlen_q, seqlen_k, heads_q, heads_k;
    int query_tiles, splits;
    int pack;  // log2 of the heads that share a tile (tiles with kPacked)
    bool causal;
    float scale;  // softmax_scale * log2(e)
};

/// Where one block works. A sequence's rows are its queries; with kPacked its pairs of query and head.
struct ForwardPlace {
    int head;                       // query head, with kPacked the first of those that share the tile
    int first_row, rows;            // of the tile: where it begins in the sequence, and how many are valid
    int queries, keys;              // of the sequence
    size_t query_start, key_start;  // the sequence's first row in q and o, and in k and v
    size_t lse_start;               // of the sequence's first query and `head` in lse
    int lse_pitch;                  // between heads in lse

    /// Query of a row of the tile.
    template <class Tile>
    __device__ __forceinline__ int query(const ForwardArguments& a, int row) const {
        return Tile::kPacked ? (first_row + row) >> a.pack : first_row + row;
    }
    /// How far a row's head is behind `head`.
    template <class Tile>
    __device__ __forceinline__ int head_of(const ForwardArguments& a, int row) const {
        return Tile::kPacked ? (first_row + row) & ((1 << a.pack) - 1) : 0;
    }
    /// A row of the tile as a row of [.., heads_q] in q and o.
    template <class Tile>
    __device__ __forceinline__ size_t position(const ForwardArguments& a, int row) const {
        return (query_start + query<Tile>(a, row)) * a.heads_q + head + head_of<Tile>(a, row);
    }
    template <class Tile>
    __device__ __forceinline__ size_t lse_position(const ForwardArguments& a, int row) const {
        return lse_start + static_cast<size_t>(head_of<Tile>(a, row)) * lse_pitch + query<Tile>(a, row);
    }
    /// Causal: how many keys a row sees, which may be none, negative, or more than there are.
    template <class Tile>
    __device__ __forceinline__ int seen(const ForwardArguments& a, int row) const {
        return query<Tile>(a, row) + 1 + keys - queries;
    }
};

template <typename Tile>
__device__ __forceinline__ ForwardPlace forward_place(const ForwardArguments& a) {
    // Hidden from the compiler: it would keep what the prologue computed alive, in spilled registers, for the epilogue
    // instead of computing it again.
    int block = static_cast<int>(blockIdx.x);
    asm volatile("" : "+r"(block));
    const int in_head = block % a.query_tiles, head = block / a.query_tiles;
    const int pack = Tile::kPacked ? a.pack : 0, heads = a.heads_q >> pack;
    const int batch = head / heads;
    ForwardPlace w;
    w.head = head % heads << pack;
    // Causal tiles near the end see most keys: start them first, so that short ones fill the last round.
    w.first_row = (a.causal ? a.query_tiles - 1 - in_head : in_head) * Tile::kQueries;
    w.rows = min(Tile::kQueries, (a.seqlen_q << pack) - w.first_row);
    w.queries = a.seqlen_q;
    w.keys = a.seqlen_k;
    w.query_start = static_cast<size_t>(batch) * a.seqlen_q;
    w.key_start = static_cast<size_t>(batch) * a.seqlen_k;
    w.lse_start = (static_cast<size_t>(batch) * a.heads_q + w.head) * a.seqlen_q;
    w.lse_pitch = a.seqlen_q;
    return w;
}

/// Which key tiles one block takes: its part of those that the last of its rows sees.
template <typename Tile>
__device__ __forceinline__ KvRange forward_steps(const ForwardArguments& a, const ForwardPlace& place) {
    // Causal: query i sees keys j <= i + keys - queries.
    const int seen = place.seen<Tile>(a, place.rows - 1);
    const int steps = ceil_div(a.causal ? max(0, min(place.keys, seen)) : place.keys, Tile::kKeys);
    return kv_range(steps, ceil_div(steps, a.splits), static_cast<int>(blockIdx.y));
}
