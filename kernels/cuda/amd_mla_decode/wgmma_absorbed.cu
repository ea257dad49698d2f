// SPDX-License-Identifier: MIT
// A whole MLA layer, one decode step: projections by the vendor's library, the rest fused.
//
//!KERNEL summary absorbed MLA layer: cuBLASLt projections, one small kernel, attention of mla_decode/wgmma_tma with RoPE in it
//!KERNEL arch sm_90a
//!KERNEL tune FETCHED_PAGES=3,2,0
//!KERNEL tune RELEASE_AT=2,0,1
//!KERNEL tune TURNS=0,1
//!KERNEL tune PAIRS=0,1
//!KERNEL tune WHOLE=0,1
//!KERNEL tune ROTATED_APART=0,1
//!KERNEL tune LIBRARY_CHOICE=0,1,2
//
// Absorbed form: keys are W_k c and values W_v c of a cached latent c (512 columns), so q·(W_k c) = (W_k^T q)·c, and the
// mean of W_v c is W_v of the mean. The cache is read once, as keys and values of one head that all query heads share.
//
//   1 kv_row = x kv_down^T        2 latent query = x q_down^T        3 q = latent query q_up^T
//   4 absorbed queries = q's first 128 columns times W_k, per head, into the first 512 of 576 columns
//   5 one kernel: rotate q's other 64 columns into the rest; append kv_row to the cache; tables (tile/layer_inputs.h)
//   6 attention, whose idle warps rotate the cached keys in shared memory (tile/wgmma_latent_rotate.h)
//   7 heads = latent outputs times W_v^T, per head        8 y = heads wo^T
// 1 to 4, 7 and 8 are cuBLASLt's (tile/library_product.h). A request's rows of the cache follow one another, so its pages
// are numbered in order, and the row that a call appends is where the attention looks for it.
//
// Shapes: those of kernel.h with dim and q_rank multiples of 8, max_len of 64, 16-byte aligned tensors.
// Limits: weights at the speed of memory (374 MB in the challenge's shapes), then the attention's (mla_decode/wgmma_tma.cu).
#include "kernel.h"

#include <cstdint>

#include "ceil_div.h"
#include "launch.h"
#include "tile/layer_inputs.h"
#include "tile/library_product.h"
#include "tile/wgmma_latent_launch.h"

#ifndef FETCHED_PAGES
#define FETCHED_PAGES 3
#endif
#ifndef RELEASE_AT
#define RELEASE_AT 2
#endif
#ifndef TURNS
#define TURNS 0
#endif
#ifndef ONCE
#define ONCE 1
#endif
#ifndef PAIRS
#define PAIRS 0
#endif
#ifndef ROTATED_APART
#define ROTATED_APART 0  // a copy of the cached rotary columns, rotated, in front of the attention
#endif
#ifndef WHOLE
#define WHOLE 0  // no request is cut into parts, whatever the balance
#endif

namespace {

constexpr int kHeads = 128, kNope = 128, kQuery = 192, kValue = 128, kMap = 256;  // columns of a head; rows of its maps
constexpr int kLatentColumns = 512, kColumns = 576;
constexpr Rotary kRotary = ROTATED_APART ? Rotary::kApart : Rotary::kHere;
constexpr size_t kLibraryBytes = size_t{64} << 20;

/// Takes pieces of the workspace, 256-byte aligned.
struct Room {
    uint8_t* at;
    uint8_t* end;

    Room(void* start, size_t bytes)
        : at(reinterpret_cast<uint8_t*>((reinterpret_cast<uintptr_t>(start) + 255) / 256 * 256)),
          end(static_cast<uint8_t*>(start) + bytes) {}
    uint8_t* take(size_t bytes) {
        uint8_t* const piece = at;
        at += (bytes + 255) / 256 * 256;
        return piece;
    }
    bool enough() const { return at <= end; }
};

}  // namespace

extern "C" int amd_mla_decode(
    const void* x, const void* q_down, const void* q_up, const void* kv_down, const void* kv_up, const void* wo,
    void* kv_cache, void* y, void* kv_row, int batch, int dim, int q_rank, int length, int max_len, void* workspace,
    size_t workspace_bytes, void* queue) {
    using Shape = LatentShape<PAIRS + 1, RELEASE_AT, FETCHED_PAGES, TURNS != 0, ONCE != 0, kRotary>;
    if (batch < 1 || dim < 8 || dim % 8 != 0 || q_rank < 8 || q_rank % 8 != 0) return kUnsupportedShape;
    if (length < 0 || length >= max_len || max_len % 64 != 0) return kUnsupportedShape;
    if (static_cast<long long>(batch) * max_len > 0x7fffffffLL) return kUnsupportedShape;
    for (const void* tensor : {x, q_down, q_up, kv_down, kv_up, wo, static_cast<const void*>(kv_cache),
                               static_cast<const void*>(y), static_cast<const void*>(kv_row)}) {
        if (!latent_aligned(tensor)) return kUnsupportedShape;
    }
    const int pages = length / 64 + 1;
    const size_t rows = static_cast<size_t>(batch) * kHeads;
    Room room(workspace, workspace_bytes);
    uint8_t* const scratch = room.take(kLibraryBytes);
    uint8_t* const latent_query = room.take(static_cast<size_t>(batch) * q_rank * 2);
    uint8_t* const q = room.take(rows * kQuery * 2);
    uint8_t* const queries = room.take(rows * kColumns * 2);
    uint8_t* const outputs = room.take(rows * kLatentColumns * 2);
    uint8_t* const heads = room.take(rows * kValue * 2);
    uint8_t* const lse = room.take(rows * 4);
    uint8_t* const rotations = room.take(pages * size_t{64 * 128});
    int* const block_table = reinterpret_cast<int*>(room.take(static_cast<size_t>(batch) * pages * 4));
    int* const seqlens = reinterpret_cast<int*>(room.take(static_cast<size_t>(batch) * 4));
    uint8_t* const rotary = ROTATED_APART ? room.take(static_cast<size_t>(batch) * pages * 64 * 128) : nullptr;
    if (!room.enough()) return kWorkspaceTooSmall;

    int device = 0, multiprocessors = 0;
    int status = static_cast<int>(cudaGetDevice(&device));
    if (status == 0) {
        status = static_cast<int>(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    }
    const auto multiply = [&](const LibraryProduct& product) {
        if (status == 0) status = library_product(product, scratch, kLibraryBytes, queue);
    };
    const uint8_t* const value_maps = static_cast<const uint8_t*>(kv_up) + kNope * kLatentColumns * 2;
    constexpr long long kMapStep = kMap * kLatentColumns, kRow = kHeads;  // between heads' maps; heads of a request
    multiply({x, kv_down, kv_row, batch, kColumns, dim, dim, dim, kColumns});
    multiply({x, q_down, latent_query, batch, q_rank, dim, dim, dim, q_rank});
    multiply({latent_query, q_up, q, batch, kHeads * kQuery, q_rank, q_rank, q_rank, kHeads * kQuery});
    multiply({q, kv_up, queries, batch, kLatentColumns, kNope, kRow * kQuery, kLatentColumns, kRow * kColumns, true, kHeads,
              kQuery, kMapStep, kColumns});
    if (status != 0) return status;

    const LayerInputs inputs = {q, queries, static_cast<const uint8_t*>(kv_row), static_cast<uint8_t*>(kv_cache), rotations,
                                block_table, seqlens, batch, kHeads, length, max_len, pages};
    status = launch_prepare_attention(inputs, queue);
    if (status == 0 && ROTATED_APART) status = launch_rotate_cache(inputs, rotary, queue);
    if (status != 0) return status;

    LatentArguments a{};
    a.q = queries;
    a.cache = static_cast<const uint8_t*>(kv_cache);
    a.block_table = block_table;
    a.o = outputs;
    a.lse = reinterpret_cast<float*>(lse);
    a.schedule.seqlens = seqlens;
    a.schedule.batch = batch;
    a.schedule.longest = pages * Shape::kTokens;
    a.seqlen_q = 1;
    a.heads = kHeads;
    a.max_blocks = pages;
    a.row_tiles = kHeads / Shape::kRows;
    a.scale = kLog2E / 13.856406461f;  // sqrt(192)
    a.rotations = rotations;
    if (ROTATED_APART) {
        status = encode_tensor_map(&a.rotary, {rotary, batch * pages * 64, 64, 2}, Shape::kTokens / Shape::kPair, 64);
        if (status != 0) return status;
    }
    const LatentTensors tensors = {
        {queries, batch * kHeads, kColumns, 2}, {kv_cache, batch * max_len, kColumns, 2}};
    status = launch_latent_wgmma<Shape>(
        a, tensors, multiprocessors, room.at, WHOLE ? 0 : static_cast<size_t>(room.end - room.at), queue);
    multiply({outputs, value_maps, heads, batch, kValue, kLatentColumns, kRow * kLatentColumns, kLatentColumns,
              kRow * kValue, false, kHeads, kLatentColumns, kMapStep, kValue});
    multiply({heads, wo, y, batch, dim, kHeads * kValue, kHeads * kValue, kHeads * kValue, dim});
    return status;
}
