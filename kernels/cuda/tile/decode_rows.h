// SPDX-License-Identifier: MIT
// Where the results of a decode step lie. A request has seqlen_q * heads rows: row = query * heads + head.
//
//   queries, outputs          [batch, rows, columns]      row first_row_of(a, request) + row
//   outputs, LSEs of parts    [parts, rows(, columns)]    row first_row_of(a, part) + row
//   LSEs of requests          [batch, heads, seqlen_q]    lse_index(a, request, row): the only ones in another order
//
// Arguments are those of any kernel: seqlen_q, heads, lse, and parts as in split_kv.h.
#pragma once

#include <cstddef>

#include "tile/decode_schedule.h"

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
