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
// waves work side by side, one of each on a SIMD, with one barrier per tile:
//   1. wave 4 + w scores rows 16 w .. against the tokens of a tile (s^T = k q^T, 36 MFMAs, its rows of q in registers), takes
//      them into its online softmax, and leaves probabilities and rescaling factors in LDS;
//   2. waves 0 to 3 add 128 of the 512 columns each, for all rows, of the tile before (o^T += v^T p^T). They have read these
//      from the same LDS tile meanwhile, and transposed them in registers (v_perm_b32).
// So the softmax of one tile takes place beside products of another. Tokens beyond a request's length read as zeros by the
// buffer's bounds, and only pages that the length covers are looked up: NaN in unused slots never enters.
//
//   rows  threads  waves that score  LDS bytes
//   16    512      1                 56 448
//   32    512      2                 57 600
//   64    512      4                 59 904
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
// Limits. LDS holds one workgroup per compute unit. With 64 rows LDS is busy, as modelled, for 89 % of the products' time,
// most of it for keys, which each scoring wave reads. Clang 20 and older split the vector registers into two fixed halves
// and spill with more than 16 rows: use MAX_ROW_TILES=1 there.

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
