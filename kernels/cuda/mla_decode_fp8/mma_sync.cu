// SPDX-License-Identifier: MIT
// MLA decode over an e4m3 cache on mma.sync: codes go to the tensor cores as fp16, scales to the scores and the weights.
//
//!KERNEL summary split-KV MLA decode over e4m3 codes on mma.sync.m16n8k16.f16; scales applied to scores and weights
//!KERNEL arch sm_89
//
// Algorithm. The rows of a request are its heads times its queries; a block takes 16 or 32 of them and a range of
// tokens, 32 at a time. A token's latent columns are 512 e4m3 codes with a scale for each group of 128, the rotary
// ones bf16. Codes are never multiplied by scales: as fp16, which holds every code, they go to the tensor cores, and
//   1. scores: a warp takes one group of half of the tokens; what comes out is multiplied by the tokens' scales of that
//      group, a quarter of the rotary columns is added in bf16, and the four groups meet in shared memory in fp32;
//   2. softmax: online, exp2 domain; the probabilities times a group's scales are that group's weights, fp16, four planes
//      in shared memory (tile/coded_latent_softmax.h says how scales of any size fit);
//   3. output: each warp owns 64 of the 512 columns for all rows, O += weights x codes, by transposing ldmatrix.
// Every code is converted twice, once per product: 1024 instructions per 64 tokens, less than writing and reading 16-bit
// tiles would cost. Fragments of bytes are described in tile/coded_latent_scores.h and tile/coded_latent.h.
//
// Memory. A token's 656 bytes lie in shared memory as in the cache: rows of 41 16-byte chunks start at different banks
// (tile/coded_latent_ring.h). Slots behind the length hold NaN, as codes, scales and rotary columns: they are not read, their rows
// in shared memory are zero.
//
//   tile       used for                     slots of 32 tokens   shared memory
//   16 rows    rows not divisible by 32             3                 75 KB
//   32 rows    the others                           3                 88 KB
//
// Balance as in mla_decode/mma_sync.cu (tile/decode_schedule.h): equal chunks of all tokens, a second kernel merges parts in a
// fixed order.
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors; heads_q * seqlen_q any multiple of 16.
// Accuracy: codes, scales and queries enter exactly, weights are rounded to fp16's 11 bits. A token whose weight is less
// than 2^-27 of the largest scale seen loses bits.
#include "kernel.h"

#include <algorithm>
#include <cstdint>

#include "tile/coded_latent_launch.h"

namespace {

struct Call {
    const void* q;
    const void* cache;
    const int* block_table;
    const int* seqlens;
    void* o;
    float* lse;
    int batch, seqlen_q, heads, max_blocks, causal;
    float scale;
};

template <class Tile>
int launch(const Call& c, void* workspace, size_t workspace_bytes, void* queue) {
    typename Tile::Arguments a{};
    a.q = static_cast<const uint8_t*>(c.q);
    a.cache = static_cast<const uint8_t*>(c.cache);
    a.block_table = c.block_table;
    a.o = static_cast<uint8_t*>(c.o);
    a.lse = c.lse;
    a.schedule.seqlens = c.seqlens;
    a.schedule.batch = c.batch;
    a.schedule.longest = c.max_blocks * CodedRow::kPage;
    a.seqlen_q = c.seqlen_q;
    a.heads = c.heads;
    a.max_blocks = c.max_blocks;
    a.causal = c.causal != 0;
    a.scale = c.scale * kLog2E;
    return launch_coded<Tile>(a, {128, 160}, workspace, workspace_bytes, queue);
}

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

extern "C" int mla_decode_fp8(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    if (batch < 1 || seqlen_q < 1 || heads_q < 1 || num_blocks < 1 || max_blocks_per_seq < 1) return kUnsupportedShape;
    // The line of all tokens is counted in int.
    if (static_cast<long long>(batch) * (max_blocks_per_seq + 1LL) > (1 << 24)) return kUnsupportedShape;
    const long long rows = static_cast<long long>(seqlen_q) * heads_q;
    if (rows % 16 != 0 || rows > (1 << 20) || !(softmax_scale > 0.0f)) return kUnsupportedShape;
    if (!aligned(q) || !aligned(kv_cache) || !aligned(o) || !aligned(workspace)) return kUnsupportedShape;
    const Call call = {q, kv_cache, block_table, seqlens, o, lse, batch, seqlen_q, heads_q, max_blocks_per_seq, causal,
                       softmax_scale};
    if (rows % 32 == 0) return launch<CodedTile<2, 3>>(call, workspace, workspace_bytes, queue);
    return launch<CodedTile<1, 3>>(call, workspace, workspace_bytes, queue);
}
