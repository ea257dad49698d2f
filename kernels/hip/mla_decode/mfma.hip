// SPDX-License-Identifier: MIT
//!KERNEL summary Absorbed MLA decode on bf16 MFMA 16x16x16: one LDS tile serves keys and values, split KV with a merge
//!KERNEL arch gfx942
//!KERNEL tune SPLITS=0,1,2,4,8,16,32
//!KERNEL tune MAX_ROW_TILES=4,2,1
//
// Multi-head latent attention, decode, over a paged bf16 cache, for MI300 (CDNA3): O and the natural-log LSE.
//
// Algorithm. All query heads share one KV head, so a request is a small matrix product: rows are (query, head) pairs. A
// workgroup of eight waves takes 16, 32 or 64 rows of one request and a range of its tokens, 32 at a time. A tile of 32 x 576
// values lies in LDS once, as memory has it; the next one is on its way in registers meanwhile. Per tile:
//   1. wave w scores rows 16 w .. against all 32 tokens (s^T = k q^T, 72 MFMAs, its rows of q in registers), takes them
//      into its online softmax, and leaves probabilities and rescaling factors in LDS; one wave per SIMD does so;
//   2. every wave adds its 64 of the 512 columns for all rows (o^T += v^T p^T). It reads eight tokens of its columns from
//      the same LDS tile and transposes them in registers (v_perm_b32).
// Three barriers per tile. Tokens beyond a request's length read as zeros by the buffer's bounds, and only pages that the
// length covers are looked up: NaN in unused slots never enters.
//
//   rows  threads  waves that score  LDS bytes
//   16    512      1                 37 952
//   32    512      2                 39 040
//   64    512      4                 41 216
//
// More rows than 16 * MAX_ROW_TILES make several workgroups per range of tokens. They run side by side on one die, so that
// its L2 reads memory once.
//
// Split KV. The host cannot see the lengths: it cuts max_blocks_per_seq pages into SPLITS parts (0: by the cost model of
// common/split_kv.h, as far as the workspace reaches). Parts write normalised fp32 rows and their LSE to the workspace; a
// second kernel merges them in a fixed order. Without workspace there is one part.
//
// Shapes. heads_q a multiple of 16, any seqlen_q, any lengths from 0 on. softmax_scale must be positive.
//
// Limits. LDS holds one workgroup per compute unit, and its waves wait for those that score: with 64 rows that is about as
// long as the tile's bytes take to arrive, with fewer it is less. Clang 20 and older split the vector registers into two
// fixed halves and spill with more than 16 rows: use MAX_ROW_TILES=1 there.

#include "kernel.h"
#include "launch.h"

#include "mla/decode.h"

#ifndef SPLITS
#define SPLITS 0
#endif
#ifndef MAX_ROW_TILES
#define MAX_ROW_TILES 4
#endif

extern "C" int mla_decode(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    (void)num_blocks;
    constexpr int kMaxPages = 1 << 24;  // tokens of a request, and more, are counted with 31 bits
    if (batch < 1 || seqlen_q < 1 || heads_q < 16 || heads_q % 16 != 0 || max_blocks_per_seq < 0 ||
        max_blocks_per_seq > kMaxPages || !(softmax_scale > 0.0f) ||
        static_cast<long long>(seqlen_q) * heads_q > 0xffffff)
        return kUnsupportedShape;
    const Decode problem = {
        static_cast<const uint16_t*>(q),
        static_cast<const uint16_t*>(kv_cache),
        block_table,
        seqlens,
        nullptr,
        0,
        0,
        static_cast<uint16_t*>(o),
        lse,
        {},
        batch,
        seqlen_q,
        heads_q,
        max_blocks_per_seq,
        causal,
        softmax_scale * kLog2E,
        1,
        1};
    const int rows = seqlen_q * heads_q, tokens = max_blocks_per_seq * kPageTokens;
    const int row_tiles = rows <= 16 ? 1 : rows <= 32 ? 2 : 4;
    switch (row_tiles < MAX_ROW_TILES ? row_tiles : MAX_ROW_TILES) {
        case 1: return launch_decode<1, PagedLoader>(problem, tokens, SPLITS, workspace, workspace_bytes, queue);
        case 2: return launch_decode<2, PagedLoader>(problem, tokens, SPLITS, workspace, workspace_bytes, queue);
        default: return launch_decode<4, PagedLoader>(problem, tokens, SPLITS, workspace, workspace_bytes, queue);
    }
}
