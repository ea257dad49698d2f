// SPDX-License-Identifier: MIT
// MLA decode over an e4m3 cache on mma.sync: codes go to the tensor cores as fp16, scales to the scores and the weights.
//
//!KERNEL summary split-KV MLA decode over e4m3 codes on mma.sync.m16n8k16.f16; scales applied to scores and weights
//!KERNEL arch sm_89
//!KERNEL define QUICK_CUT=0
//!KERNEL define EXPECTED_CUT=0
//
//   producer loop  mla/fp8_mma_sync_scores.h (AsyncRing)
//   main loop      mla/fp8_mma_sync.h (decode_fp8_piece)
//   epilogue       mla/fp8_mma_sync.h (decode_fp8_piece, combine_fp8)
//
// Algorithm. The rows of a request are its heads times its queries; a block takes 16 or 32 of them and a range of
// tokens, 32 at a time. A token's latent columns are 512 e4m3 codes with a scale for each group of 128, the rotary
// ones bf16. Codes are never multiplied by scales: as fp16, which holds every code, they go to the tensor cores, and
//   1. scores: a warp takes one group of half of the tokens; what comes out is multiplied by the tokens' scales of that
//      group, a quarter of the rotary columns is added in bf16, and the four groups meet in shared memory in fp32;
//   2. softmax: online, exp2 domain; the probabilities times a group's scales are that group's weights, fp16, four planes
//      in shared memory (mla/fp8_mma_sync.h says how scales of any size fit);
//   3. output: each warp owns 64 of the 512 columns for all rows, O += weights x codes, by transposing ldmatrix.
// Every code is converted twice, once per product: 1024 instructions per 64 tokens, less than writing and reading 16-bit
// tiles would cost. Fragments of bytes are described in mla/fp8_mma_sync_scores.h and mla/fp8_mma_sync.h.
//
// Memory. A token's 656 bytes lie in shared memory as in the cache: rows of 41 16-byte chunks start at different banks
// (mla/fp8_mma_sync_scores.h). Slots behind the length hold NaN, as codes, scales and rotary columns: they are not read, their rows
// in shared memory are zero.
//
//   tile       used for                     slots of 32 tokens   shared memory
//   16 rows    rows not divisible by 32             3                 75 KB
//   32 rows    the others                           3                 88 KB
//
// Balance as in mla_decode/mma_sync.cu (mla/schedule.h): equal chunks of all tokens, a second kernel merges parts in a
// fixed order.
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors; heads_q * seqlen_q any multiple of 16.
// Accuracy: codes, scales and queries enter exactly, weights are rounded to fp16's 11 bits. A token whose weight is less
// than 2^-27 of the largest scale seen loses bits.
#include "kernel.h"

#include <algorithm>
#include <cstdint>

#include "mla/call.h"
#include "mla/fp8_mma_sync.h"

using namespace mla;

namespace {

template <class Tile>
int launch(const DecodeCall& call, void* workspace, size_t workspace_bytes, void* queue) {
    const auto a = call.arguments<typename Tile::Arguments>();
    return launch_fp8<Tile>(a, {128, 160}, workspace, workspace_bytes, queue);
}

}  // namespace

extern "C" int mla_decode_fp8(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    const DecodeCall call = {
        q,          kv_cache,           block_table, seqlens,      o, lse, batch, seqlen_q, heads_q,
        num_blocks, max_blocks_per_seq, causal,      softmax_scale};
    const long long rows = call.rows();
    if (!call.valid(1, 1 << 24) || rows % 16 != 0 || rows > (1 << 20))
        return kUnsupportedShape;  // tokens are counted in int
    if (!DecodeCall::aligned(workspace)) return kUnsupportedShape;
    if (rows % 32 == 0) return launch<Fp8Tile<2, 3>>(call, workspace, workspace_bytes, queue);
    return launch<Fp8Tile<1, 3>>(call, workspace, workspace_bytes, queue);
}
