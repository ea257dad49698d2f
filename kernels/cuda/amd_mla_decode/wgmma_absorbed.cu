// SPDX-License-Identifier: MIT
// A whole MLA layer, one decode step: projections by the vendor's library, the rest fused.
//
//!KERNEL summary absorbed MLA layer: cuBLASLt projections, one small kernel with RoPE, the attention of mla_decode/wgmma_tma
//!KERNEL arch sm_90a
//!KERNEL tune PAIRS=1,0
//!KERNEL tune FETCHED_BYTES=128,256
//!KERNEL tune EARLY_START=1,0
//!KERNEL tune LIBRARY_CHOICE=0,1,2
//!KERNEL tune LIBRARY=1,0
//!KERNEL define QUICK_CUT=1
//!KERNEL define EXPECTED_CUT=0
//!KERNEL define START_PAGES=2
//
//   producer loop  mla/wgmma_producer.h (produce_pages)
//   main loop      mla/wgmma_mainloop.h (piece)
//   epilogue       mla/wgmma_mainloop.h (finish), mla/gather.h (run)
//
// Absorbed form: keys are W_k c and values W_v c of a cached latent c (512 columns), so q (W_k c) = (W_k^T q) c, and the mean of
// W_v c is W_v of the mean. The cache is read once, as keys and values of one head that all query heads share.
//
//   1 kv_row = x kv_down^T        2 latent query = x q_down^T        3 q = latent query q_up^T
//   4 absorbed queries = q's first 128 columns times W_k, per head, into the first 512 of 576 columns
//   5 one kernel: rotate q's other 64 columns into the rest; append kv_row to the cache; rotate the cached rotary columns into an
//     array of their own; pages in order (mla/layer_kernels.h)
//   6 attention, which takes the last 64 columns of keys from that array
//   7 heads = latent outputs times W_v^T, per head        8 y = heads wo^T
// 1 to 4, 7 and 8 are cuBLASLt's (mla/layer_library.h). Where it does not start they are a plain kernel's: right, and slow.
// A request's rows of the cache follow one another, so its pages are numbered in order, and the row that a call appends is where
// the attention looks for it.
//
// Shapes: those of kernel.h with dim and q_rank multiples of 8, max_len of 64, 16-byte aligned tensors.
// Limits: weights at the speed of memory (374 MB in the challenge's shapes), then the attention's (mla_decode/wgmma_tma.cu).
#include "kernel.h"

#include <cstdint>

#include "common/device.h"
#include "launch.h"
#include "mla/call.h"
#include "mla/layer_kernels.h"
#include "mla/layer_library.h"
#include "mla/wgmma.h"

using namespace mla;

namespace {

constexpr int kHeads = 128, kNope = 128, kQuery = 192, kValue = 128, kMap = 256;  // columns of a head; rows of its maps
constexpr int kLatentColumns = 512, kColumns = 576;
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
    using Shape = LatentShape<PAIRS + 1, true, true>;
    if (batch < 1 || dim < 8 || dim % 8 != 0 || q_rank < 8 || q_rank % 8 != 0) return kUnsupportedShape;
    if (length < 0 || length >= max_len || max_len % 64 != 0) return kUnsupportedShape;
    if (static_cast<long long>(batch) * max_len > 0x7fffffffLL) return kUnsupportedShape;
    for (const void* tensor :
         {x, q_down, q_up, kv_down, kv_up, wo, static_cast<const void*>(kv_cache), static_cast<const void*>(y),
          static_cast<const void*>(kv_row)}) {
        if (reinterpret_cast<uintptr_t>(tensor) % 16 != 0) return kUnsupportedShape;
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
    int* const block_table = reinterpret_cast<int*>(room.take(static_cast<size_t>(batch) * pages * 4));
    int* const seqlens = reinterpret_cast<int*>(room.take(static_cast<size_t>(batch) * 4));
    uint8_t* const rotary = room.take(static_cast<size_t>(batch) * pages * 64 * 128);
    if (!room.enough()) return kWorkspaceTooSmall;

    int status = 0;
    const int multiprocessors = ::multiprocessors(status);
    const auto multiply = [&](const LayerProduct& product) {
        if (status != 0) return;
        status = LIBRARY && library_works() ? library_product(product, scratch, kLibraryBytes, queue)
                                            : launch_plain_product(product, queue);
    };
    const uint8_t* const value_maps = static_cast<const uint8_t*>(kv_up) + kNope * kLatentColumns * 2;
    constexpr long long kMapStep = kMap * kLatentColumns, kRow = kHeads;  // between heads' maps; heads of a request
    multiply({x, kv_down, kv_row, batch, kColumns, dim, dim, dim, kColumns});
    multiply({x, q_down, latent_query, batch, q_rank, dim, dim, dim, q_rank});
    multiply({latent_query, q_up, q, batch, kHeads * kQuery, q_rank, q_rank, q_rank, kHeads * kQuery});
    multiply(
        {q, kv_up, queries, batch, kLatentColumns, kNope, kRow * kQuery, kLatentColumns, kRow * kColumns, true, kHeads,
         kQuery, kMapStep, kColumns});
    if (status != 0) return status;

    const LayerInputs inputs = {
        q,
        queries,
        static_cast<const uint8_t*>(kv_row),
        static_cast<uint8_t*>(kv_cache),
        rotary,
        block_table,
        seqlens,
        batch,
        kHeads,
        length,
        max_len,
        pages};
    status = launch_prepare_attention(inputs, queue);
    if (status != 0) return status;

    const DecodeCall call = {queries, kv_cache, block_table,   seqlens, outputs, reinterpret_cast<float*>(lse), batch,
                             1,       kHeads,   batch * pages, pages,   0,       1.0f / 13.856406461f};  // sqrt(192)
    auto a = call.arguments<LatentArguments>();
    a.row_tiles = kHeads / Shape::kRows;
    status = encode_tensor_map(&a.rotary, {rotary, batch * pages * 64, 64, 2}, Shape::kTokens / Shape::kPair, 64);
    if (status != 0) return status;
    const LatentTensors tensors = {{queries, batch * kHeads, kColumns, 2}, {kv_cache, batch * max_len, kColumns, 2}};
    status = launch_latent_wgmma<Shape>(
        a, tensors, multiprocessors, room.at, static_cast<size_t>(room.end - room.at), queue, workspace);
    multiply(
        {outputs, value_maps, heads, batch, kValue, kLatentColumns, kRow * kLatentColumns, kLatentColumns,
         kRow * kValue, false, kHeads, kLatentColumns, kMapStep, kValue});
    multiply({heads, wo, y, batch, dim, kHeads * kValue, kHeads * kValue, kHeads * kValue, dim});
    return status;
}
