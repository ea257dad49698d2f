// SPDX-License-Identifier: MIT
// A call of MLA decode, and where its results lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mla/schedule.h"
#include "online_softmax.h"

namespace mla {

// A call of MLA decode as every kernel file gets it, and what its device code is told.

struct DecodeCall {
    static constexpr int kPage = 64;  // tokens

    const void* q;           // [batch, seqlen_q, heads, 576] bf16
    const void* cache;       // [num_blocks, 64, bytes of a token]
    const int* block_table;  // [batch, max_blocks]
    const int* seqlens;      // [batch]
    void* o;                 // [batch, seqlen_q, heads, 512] bf16
    float* lse;              // [batch, heads, seqlen_q]
    int batch, seqlen_q, heads, num_blocks, max_blocks;
    int causal;
    float softmax_scale;

    long long rows() const { return static_cast<long long>(seqlen_q) * heads; }  // of a request

    /// Whether there is something to do, with a scale that keeps the order of scores, on tensors of whole 16 bytes, and the line of all
    /// pages, each request counting for `start` more, can be counted up to `most`.
    bool valid(long long start, long long most) const {
        if (batch < 1 || seqlen_q < 1 || heads < 1 || num_blocks < 1 || max_blocks < 1 || !(softmax_scale > 0.0f))
            return false;
        return batch * (max_blocks + start) <= most && aligned(q) && aligned(cache) && aligned(o);
    }
    static bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

    /// All of `Arguments` that does not depend on a kernel's tile and on how the batch is cut; the rest is zero.
    template <class Arguments>
    Arguments arguments() const {
        Arguments a{};
        a.q = static_cast<const uint8_t*>(q);
        a.cache = static_cast<const uint8_t*>(cache);
        a.block_table = block_table;
        a.o = static_cast<uint8_t*>(o);
        a.lse = lse;
        a.schedule.seqlens = seqlens;
        a.schedule.batch = batch;
        a.schedule.longest = max_blocks * kPage;
        a.seqlen_q = seqlen_q;
        a.heads = heads;
        a.max_blocks = max_blocks;
        a.causal = causal != 0;
        a.scale = softmax_scale * kLog2E;
        return a;
    }
};

// Where the results of a decode step lie. A request has seqlen_q * heads rows: row = query * heads + head.
//
//   queries, outputs          [batch, rows, columns]      row first_row_of(a, request) + row
//   outputs, LSEs of parts    [parts, rows(, columns)]    row first_row_of(a, part) + row
//   LSEs of requests          [batch, heads, seqlen_q]    lse_index(a, request, row): the only ones in another order
//
// Arguments are those of any kernel: seqlen_q, heads, lse, and parts as in split_kv.h.

/// The least that arguments have here.
struct RequestRows {
    int seqlen_q, heads;
};

/// The first row of a request among all outputs, or of a part among all parts.
template <class Arguments>
__device__ __forceinline__ size_t first_row_of(const Arguments& a, int request_or_part) {
    return static_cast<size_t>(request_or_part) * (a.seqlen_q * a.heads);
}

/// Where the LSE of a request's row is. A division is 40 instructions, and calls of one query are spared it unless !kOneQuery, for a
/// kernel that was measured so.
template <bool kOneQuery = true, class Arguments>
__device__ __forceinline__ size_t lse_index(const Arguments& a, int request, int row) {
    const int query = kOneQuery && a.seqlen_q == 1 ? 0 : row / a.heads, head = row - query * a.heads;
    return (static_cast<size_t>(request) * a.heads + head) * a.seqlen_q + query;
}

/// Store the LSE of a row of a piece: its request's if it is all of that, else its part's.
template <class Arguments>
__device__ __forceinline__ void store_lse(const Arguments& a, const DecodePiece& piece, int part, int row, float lse) {
    const size_t index = lse_index(a, piece.request, row);
    const size_t part_row = first_row_of(a, part) + row;
    (piece.whole() ? a.lse[index] : a.parts.lse[part_row]) = lse;
}

}  // namespace mla
