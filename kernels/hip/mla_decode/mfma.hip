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

#include "mla/decode.h"

#ifndef SPLITS
#define SPLITS 0
#endif
#ifndef MAX_ROW_TILES
#define MAX_ROW_TILES 4
#endif

namespace {

/// This thread's share of a tile of tokens on its way to LDS.
class Bf16Tokens {
    static constexpr int kChunksPerRow = kRowBytes / 16;
    static constexpr int kChunks = kTokens * kChunksPerRow;
    static constexpr int kLoads = (kChunks + kThreads - 1) / kThreads;
    static_assert(kChunks % kWaveSize == 0, "whole waves load");

    const uint16_t* cache_;
    PageList pages_;
    int length_;
    u32x4 held_[kLoads];

    static __device__ __forceinline__ int chunk(int i) { return i * kThreads + static_cast<int>(threadIdx.x); }

public:
    static constexpr int kTokenBytes = kRowBytes;

    static __device__ __forceinline__ int length(const MlaDecode& problem, int request) {
        return uniform(problem.seqlens[request]);
    }

    /// For tiles from `first_tile` on of a request of `length` tokens.
    __device__ __forceinline__ Bf16Tokens(const MlaDecode& problem, int request, int length, int first_tile)
        : cache_(static_cast<const uint16_t*>(problem.kv_cache)),
          pages_(
              problem.block_table + static_cast<size_t>(request) * static_cast<size_t>(problem.max_blocks_per_seq),
              (length + kPageTokens - 1) / kPageTokens, first_tile * kTokens / kPageTokens),
          length_(length) {}

    /// Request a tile; tokens beyond the length read as zero.
    __device__ __forceinline__ void load(int tile) {
        const int token = tile * kTokens;
        const size_t row =
            static_cast<size_t>(pages_[token / kPageTokens]) * kPageTokens + static_cast<size_t>(token % kPageTokens);
        const int rows = length_ - token < kTokens ? length_ - token : kTokens;
        const BufferResource buffer = make_buffer(cache_ + row * kKeyColumns, rows * kRowBytes);
#pragma unroll
        for (int i = 0; i < kLoads; ++i) held_[i] = buffer_load_16(buffer, chunk(i) * 16);
    }

    /// Wait for what was requested and put it into LDS.
    __device__ __forceinline__ void store(uint8_t* kv) const {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            const bool partial = (i + 1) * kThreads > kChunks;
            if (partial && i * kThreads + wave_id() * kWaveSize >= kChunks) break;
            write_chunk(kv, Rows::offset(chunk(i) / kChunksPerRow, chunk(i) % kChunksPerRow), held_[i]);
        }
    }
};

}  // namespace

extern "C" int mla_decode(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    (void)num_blocks;
    return run_decode<Bf16Tokens, MAX_ROW_TILES>(
        q, kv_cache, block_table, seqlens, o, lse, batch, seqlen_q, heads_q, max_blocks_per_seq, causal, softmax_scale,
        SPLITS, workspace, workspace_bytes, queue);
}
