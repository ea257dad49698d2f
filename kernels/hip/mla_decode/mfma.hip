// SPDX-License-Identifier: MIT
//!KERNEL summary Absorbed MLA decode on bf16 MFMA 16x16x16: one LDS tile serves keys and values, split KV with a merge
//!KERNEL arch gfx942
//!KERNEL tune SPLITS=0,1,2,4,8,16,32
//!KERNEL tune MAX_ROW_TILES=4,2,1
//
// Multi-head latent attention, decode, over a paged bf16 cache, for MI300 (CDNA3): O and the natural-log LSE.
//
// Algorithm. All query heads share one KV head, so a request is a small matrix product: rows are (query, head) pairs. A
// workgroup of eight waves takes 16, 32 or 64 rows of one request and a range of its tokens, 16 at a time. A tile of 16 x 576
// values lies in LDS once, as memory has it; there is room for three, and two more are on their way in registers. Two kinds of
// waves work side by side, one of each on a SIMD, with one barrier per step:
//   1. waves 4 to 7 score. Two of them share 32 rows (16 if there are no more), whose q they hold in registers, and take tiles
//      by turns, two steps for each: s^T = k q^T, 72 MFMAs for 18 reads of keys, and the online softmax, whose state goes
//      through LDS from one to the other. They leave probabilities and rescaling factors in LDS;
//   2. waves 0 to 3 load tiles, and add 128 of the 512 columns each, for all rows (o^T += v^T p^T), one step after a tile is
//      scored. They have read these from the same LDS tile meanwhile, and transposed them in registers (v_perm_b32).
// So the softmax of one tile takes place beside products of two others. Priorities say whose products go first: those of
// waves that add while the others wait for their first keys or take a softmax, else those of the scores. A quarter of the
// products with 64 rows is left for the wait at the start of the next step.
// Tokens beyond a request's length read as zeros by the buffer's bounds, and only pages that the length covers are looked
// up: NaN in unused slots never enters.
//
//   rows  threads  waves that score  LDS bytes
//   16    512      2                 56 960
//   32    512      2                 58 624
//   64    512      4                 61 952
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
// Limits. LDS holds one workgroup per compute unit. With 64 rows LDS is busy, as modelled, for 65 % of the products' time.
// Parts have an even number of tiles. Clang before 20 splits the vector registers into two fixed halves
// and spills with more than 16 rows: use MAX_ROW_TILES=1 there.

#include "kernel.h"

#include "mla/decode.h"

#ifndef SPLITS
#define SPLITS 0
#endif
#ifndef MAX_ROW_TILES
#define MAX_ROW_TILES 4
#endif

namespace {

class Bf16Tokens {
    static constexpr int kChunksPerRow = kRowBytes / 16;
    static constexpr int kChunks = kTokens * kChunksPerRow;
    static constexpr int kLoads = (kChunks + kLoaderThreads - 1) / kLoaderThreads;
    static_assert(kChunks % kWaveSize == 0, "whole waves load");

    const uint16_t* cache_;
    PageList pages_;
    int length_;

    static __device__ __forceinline__ int chunk(int i) { return i * kLoaderThreads + static_cast<int>(threadIdx.x); }

public:
    /// This thread's share of a tile of tokens on its way to LDS.
    struct Share {
        u32x4 chunk[kLoads];
    };

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
    __device__ __forceinline__ void load(int tile, Share& share) {
        const unsigned token = static_cast<unsigned>(tile * kTokens);
        const size_t row =
            static_cast<size_t>(pages_[static_cast<int>(token / kPageTokens)]) * kPageTokens + token % kPageTokens;
        const int rows = tokens_of(tile, length_);
        const BufferResource buffer = make_buffer(cache_ + row * kKeyColumns, rows * kRowBytes);
#pragma unroll
        for (int i = 0; i < kLoads; ++i) share.chunk[i] = buffer_load_16(buffer, chunk(i) * 16);
    }

    /// Wait for what was requested and put it into LDS.
    static __device__ __forceinline__ void store(uint8_t* kv, const Share& share) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            const bool partial = (i + 1) * kLoaderThreads > kChunks;
            if (partial && i * kLoaderThreads + wave_id() * kWaveSize >= kChunks) break;
            write_chunk(kv, Rows::offset(chunk(i) / kChunksPerRow, chunk(i) % kChunksPerRow), share.chunk[i]);
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
