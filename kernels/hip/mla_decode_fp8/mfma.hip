// SPDX-License-Identifier: MIT
//!KERNEL summary Absorbed MLA decode from a scaled e4m3fnuz cache on bf16 MFMA: tokens become bf16 on their way to LDS
//!KERNEL arch gfx942
//!KERNEL tune SPLITS=0,1,2,4,8,16,32
//!KERNEL tune MAX_ROW_TILES=4,2,1
//
// Multi-head latent attention, decode, over a paged cache of 656 bytes per token (512 e4m3fnuz, 4 fp32 scales, 64 bf16) for
// MI300 (CDNA3): O and the natural-log LSE.
//
// Algorithm. That of mla_decode/mfma.hip, of which this uses all but the loader: queries are bf16, so products are, too. A
// tile of 16 tokens arrives as codes, scales and rotary columns in registers, two tiles ahead, and is stored to LDS as bf16:
// each code times its scale in fp32, rounded once. Memory sees 656 bytes per token in place of 1152; the conversion costs
// each wave that loads about 130 vector instructions a tile.
//
// Shapes, split KV and LDS as there. Slots beyond a request's length are not read.
//
// Limits. Those of mla_decode/mfma.hip. The conversion is done once for each workgroup: with more than 64 rows per request
// each of them does it again.

#include "kernel.h"
#include "launch.h"

#include "isa/fp8.h"
#include "mla/decode.h"

#ifndef SPLITS
#define SPLITS 0
#endif
#ifndef MAX_ROW_TILES
#define MAX_ROW_TILES 4
#endif

namespace {

constexpr int kScaleColumns = 128;  // latent columns that share a scale
constexpr int kScalesAt = kValueColumns, kRotaryAt = kScalesAt + kValueColumns / kScaleColumns * 4;  // bytes of a token

class Fp8Tokens {
    static constexpr int kCodeChunks = kValueColumns / kChunk, kRotaryChunks = (kKeyColumns - kValueColumns) / 8;
    static constexpr int kLoads = kTokens * kCodeChunks / kLoaderThreads;
    static constexpr int kRotaryThreads = kTokens * kRotaryChunks;
    static_assert(
        kLoads * kLoaderThreads == kTokens * kCodeChunks && kRotaryThreads % kWaveSize == 0, "whole waves load");

public:
    static constexpr int kTokenBytes = kRotaryAt + (kKeyColumns - kValueColumns) * 2;

    /// This thread's share of a tile of tokens on its way to LDS: pieces of 16 codes with their scales, and in half of the
    /// waves a piece of 8 rotary columns.
    struct Share {
        u32x4 codes[kLoads];
        float scale[kLoads];
        u32x4 rotary;
    };

private:
    const uint8_t* cache_;
    PageList pages_;
    int length_;

    static __device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }
    static __device__ __forceinline__ int task(int i) { return i * kLoaderThreads + thread(); }
    static __device__ __forceinline__ int token(int i) { return task(i) / kCodeChunks; }
    static __device__ __forceinline__ int chunk(int i) { return task(i) % kCodeChunks; }
    static __device__ __forceinline__ bool has_rotary() { return wave_id() < kRotaryThreads / kWaveSize; }

public:
    static __device__ __forceinline__ int length(const MlaDecode& problem, int request) {
        return uniform(problem.seqlens[request]);
    }

    /// For tiles from `first_tile` on of a request of `length` tokens.
    __device__ __forceinline__ Fp8Tokens(const MlaDecode& problem, int request, int length, int first_tile)
        : cache_(static_cast<const uint8_t*>(problem.kv_cache)),
          pages_(
              problem.block_table + static_cast<size_t>(request) * static_cast<size_t>(problem.max_blocks_per_seq),
              (length + kPageTokens - 1) / kPageTokens, first_tile * kTokens / kPageTokens),
          length_(length) {}

    /// Request a tile; tokens beyond the length read as zero.
    __device__ __forceinline__ void load(int tile, Share& share) {
        const unsigned first = static_cast<unsigned>(tile * kTokens);
        const size_t row =
            static_cast<size_t>(pages_[static_cast<int>(first / kPageTokens)]) * kPageTokens + first % kPageTokens;
        const int rows = tokens_of(tile, length_);
        const BufferResource buffer = make_buffer(cache_ + row * kTokenBytes, rows * kTokenBytes);
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            const int at = token(i) * kTokenBytes;
            share.codes[i] = buffer_load_16(buffer, at + chunk(i) * kChunk);
            share.scale[i] = buffer_load_float(buffer, at + kScalesAt + chunk(i) * kChunk / kScaleColumns * 4);
        }
        const int of = thread();
        const int rotary_at = of / kRotaryChunks * kTokenBytes + kRotaryAt + of % kRotaryChunks * 16;
        share.rotary = buffer_load_16(buffer, has_rotary() ? rotary_at : kOutside);
    }

    /// Wait for what was requested and put it into LDS.
    static __device__ __forceinline__ void store(uint8_t* kv, const Share& share) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            uint32_t pair[8];
#pragma unroll
            for (int dword = 0; dword < 4; ++dword) {
                const f32x4 value = unpack_fp8(share.codes[i][dword]) * share.scale[i];
                pair[2 * dword] = pack_bf16_finite(value[0], value[1]);
                pair[2 * dword + 1] = pack_bf16_finite(value[2], value[3]);
            }
            write_chunk(kv, Rows::offset(token(i), 2 * chunk(i)), u32x4{pair[0], pair[1], pair[2], pair[3]});
            write_chunk(kv, Rows::offset(token(i), 2 * chunk(i) + 1), u32x4{pair[4], pair[5], pair[6], pair[7]});
        }
        if (!has_rotary()) return;
        const int of = thread();
        write_chunk(kv, Rows::offset(of / kRotaryChunks, kValueColumns / 8 + of % kRotaryChunks), share.rotary);
    }
};

}  // namespace

extern "C" int mla_decode_fp8(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    (void)num_blocks;
    return run_decode<Fp8Tokens, MAX_ROW_TILES>(
        q, kv_cache, block_table, seqlens, o, lse, batch, seqlen_q, heads_q, max_blocks_per_seq, causal, softmax_scale,
        SPLITS, workspace, workspace_bytes, queue);
}
