// SPDX-License-Identifier: MIT
//!KERNEL summary absorbed MLA layer: projections by our own MFMA product, rotations, the attention of mla_decode/mfma
//!KERNEL arch gfx942
//!KERNEL tune SPLITS=0,1,2,4,8
//!KERNEL tune ROW_TILES=4,2,1
//
// A whole MLA layer, one decode step, for MI300 (CDNA3).
//
// Absorbed form: keys are W_k c and values W_v c of a cached latent c (512 columns), so q (W_k c) = (W_k^T q) c, and the mean of
// W_v c is W_v of the mean. The cache is read once, as keys and values of one head that all query heads share.
//
//   1 kv_row = x kv_down^T        2 latent query = x q_down^T        3 q = latent query q_up^T
//   4 absorbed queries = q's first 128 columns times W_k, per head, into the first 512 of 576 columns
//   5 rotary columns: of cached tokens into an array of their own; of q into the rest of the absorbed queries; kv_row into
//     the cache
//   6 attention (mla/decode.h), which takes the last 64 columns of keys from that array
//   7 heads = latent outputs times W_v^T, per head        8 y = heads wo^T
//
// Products are tile/half_product.h's, 128 x 128 tiles on MFMA 16x16x16. Those with few tiles (1, 2, 8) cut K into parts, whose
// fp32 planes a second kernel adds in a fixed order: results repeat to the bit.
//
// The cached rotary columns cost a tenth of the cache's bytes, read and written once more.
//
// Shapes: those of kernel.h with dim and q_rank multiples of 64, max_len of 64. All tensors 16-byte aligned.
//
// Limits. Weights at the speed of memory (374 MB in the challenge's shapes), then the attention's (mla_decode/mfma.hip). Clang
// before 20 spills with more than 16 rows: use ROW_TILES=1 there.

#include "kernel.h"
#include "launch.h"
#include "room.h"

#include "mla/decode.h"
#include "mla/layer.h"
#include "tile/half_product.h"

#ifndef SPLITS
#define SPLITS 0
#endif
#ifndef ROW_TILES
#define ROW_TILES 4
#endif

namespace {

constexpr int kHeads = 128, kNope = 128, kQuery = 192, kValue = 128, kMap = 256;  // columns of a head; rows of its maps
constexpr size_t kPlaneBytes = size_t{64} << 20;

/// The tokens of a request follow one another, and their rotary columns are in an array of their own.
class DenseTokens {
    static constexpr int kLatentChunks = kValueColumns * 2 / 16, kRotaryBytes = kRowBytes - kValueColumns * 2;
    static constexpr int kRotaryChunks = kRotaryBytes / 16;
    static constexpr int kLoads = kTokens * kLatentChunks / kLoaderThreads;
    static_assert(
        kTokens * kLatentChunks % kLoaderThreads == 0 && kTokens * kRotaryChunks % kWaveSize == 0, "whole waves load");

    const uint16_t* cache_;
    const uint16_t* rotary_;
    int length_;

    static __device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }
    static __device__ __forceinline__ int chunk(int i) { return i * kLoaderThreads + thread(); }
    static __device__ __forceinline__ bool has_rotary() { return wave_id() < kTokens * kRotaryChunks / kWaveSize; }

public:
    static constexpr int kTokenBytes = kRowBytes;

    /// This thread's share of a tile of tokens on its way to LDS.
    struct Share {
        u32x4 latent[kLoads], turned;
    };

    static __device__ __forceinline__ int length(const MlaDecode& problem, int) { return problem.length; }

    __device__ __forceinline__ DenseTokens(const MlaDecode& problem, int request, int length, int)
        : cache_(
              static_cast<const uint16_t*>(problem.kv_cache) + static_cast<size_t>(request) *
                                                                   static_cast<size_t>(problem.max_blocks_per_seq) *
                                                                   (kPageTokens * kKeyColumns)),
          rotary_(
              problem.rotary + static_cast<size_t>(request) * static_cast<size_t>(problem.rotary_tokens) *
                                   (kKeyColumns - kValueColumns)),
          length_(length) {}

    __device__ __forceinline__ void load(int tile, Share& share) {
        const size_t token = static_cast<size_t>(tile) * kTokens;
        const int rows = tokens_of(tile, length_);
        const BufferResource latent = make_buffer(cache_ + token * kKeyColumns, rows * kRowBytes);
        const BufferResource turned =
            make_buffer(rotary_ + token * (kKeyColumns - kValueColumns), has_rotary() ? rows * kRotaryBytes : 0);
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            const int row = chunk(i) / kLatentChunks, place = chunk(i) % kLatentChunks * 16;
            share.latent[i] = buffer_load_16(latent, row * kRowBytes + place);
        }
        share.turned = buffer_load_16(turned, thread() * 16);
    }

    static __device__ __forceinline__ void store(uint8_t* kv, const Share& share) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
            write_chunk(kv, Rows::offset(chunk(i) / kLatentChunks, chunk(i) % kLatentChunks), share.latent[i]);
        const int row = thread() / kRotaryChunks;
        const int place = thread() % kRotaryChunks + kLatentChunks;
        if (has_rotary()) write_chunk(kv, Rows::offset(row, place), share.turned);
    }
};

bool supported(int batch, int dim, int q_rank, int length, int max_len) {
    constexpr int kMostColumns = 1 << 20, kMostRequests = 1 << 16;  // byte offsets within a tile have 31 bits
    if (batch < 1 || batch > kMostRequests || length < 0 || length >= max_len || max_len % 64 != 0) return false;
    const auto fits = [](int columns) { return columns >= 64 && columns % 64 == 0 && columns <= kMostColumns; };
    return fits(dim) && fits(q_rank);
}

}  // namespace

extern "C" int amd_mla_decode(
    const void* x, const void* q_down, const void* q_up, const void* kv_down, const void* kv_up, const void* wo,
    void* kv_cache, void* y, void* kv_row, int batch, int dim, int q_rank, int length, int max_len, void* workspace,
    size_t workspace_bytes, void* queue) {
    if (!supported(batch, dim, q_rank, length, max_len)) return kUnsupportedShape;
    const size_t requests = static_cast<size_t>(batch), rows = requests * kHeads;
    const size_t tokens = static_cast<size_t>(length) + 1;
    Room room(workspace, workspace_bytes);
    float* const planes = room.take<float>(kPlaneBytes / sizeof(float));
    uint16_t* const latent_query = room.take<uint16_t>(requests * static_cast<size_t>(q_rank));
    uint16_t* const q = room.take<uint16_t>(rows * kQuery);
    uint16_t* const queries = room.take<uint16_t>(rows * kKeyColumns);
    uint16_t* const outputs = room.take<uint16_t>(rows * kValueColumns);
    uint16_t* const heads = room.take<uint16_t>(rows * kValue);
    float* const lse = room.take<float>(rows);
    uint16_t* const rotary = room.take<uint16_t>(requests * tokens * (kKeyColumns - kValueColumns));
    if (!room.enough()) return kWorkspaceTooSmall;

    const auto half = [](const void* tensor) { return static_cast<const uint16_t*>(tensor); };
    int status = 0;
    const auto multiply = [&](const HalfProduct& product) {
        if (status == 0) status = launch_half_product<false>(product, planes, kPlaneBytes, queue);
    };
    constexpr int kMapStep = kMap * kValueColumns;  // between heads' maps
    uint16_t* const row = static_cast<uint16_t*>(kv_row);
    multiply({half(x), half(kv_down), row, batch, kKeyColumns, dim, dim, dim, kKeyColumns});
    multiply({half(x), half(q_down), latent_query, batch, q_rank, dim, dim, dim, q_rank});
    multiply({latent_query, half(q_up), q, batch, kHeads * kQuery, q_rank, q_rank, q_rank, kHeads * kQuery});
    if (status != 0) return status;
    status = launch_half_product<true>(
        {q, half(kv_up), queries, batch, kValueColumns, kNope, kHeads * kQuery, kValueColumns, kHeads * kKeyColumns,
         kHeads, kQuery, kMapStep, kKeyColumns},
        planes, kPlaneBytes, queue);
    if (status != 0) return status;
    uint16_t* const cache = static_cast<uint16_t*>(kv_cache);
    status = launch_rotations({q, queries, row, cache, rotary, batch, kHeads, length, max_len}, queue);
    if (status != 0) return status;

    const MlaDecode attention = {
        queries,
        cache,
        nullptr,
        nullptr,
        rotary,
        static_cast<int>(tokens),
        static_cast<int>(tokens),
        outputs,
        lse,
        {},
        batch,
        1,
        kHeads,
        max_len / kPageTokens,
        0,
        kLog2E / 13.856406461f /* sqrt(192) */,
        1,
        1};
    status = launch_decode<DenseTokens, ROW_TILES>(
        attention, static_cast<int>(tokens), SPLITS, reinterpret_cast<void*>(room.at), room.end - room.at, queue);
    multiply(
        {outputs, half(kv_up) + kNope * kValueColumns, heads, batch, kValue, kValueColumns, kHeads * kValueColumns,
         kValueColumns, kHeads * kValue, kHeads, kValueColumns, kMapStep, kValue});
    multiply(
        {heads, half(wo), static_cast<uint16_t*>(y), batch, dim, kHeads * kValue, kHeads * kValue, kHeads * kValue,
         dim});
    return status;
}
