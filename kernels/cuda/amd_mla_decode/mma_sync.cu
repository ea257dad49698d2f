// SPDX-License-Identifier: MIT
// A whole MLA layer, one decode step, for Ada.
//
//!KERNEL summary absorbed MLA layer: projections by our own mma.sync product, RoPE, the attention of mla_decode/mma_sync
//!KERNEL arch sm_89
//!KERNEL define ROWS16_STAGES=2
//!KERNEL define ROWS16_BLOCKS=1
//!KERNEL define ROWS32_STAGES=2
//!KERNEL define QUICK_CUT=0
//!KERNEL define EXPECTED_CUT=0
//
//   producer loop  mla/mma_sync.h (decode_piece), common/bf16_product.h (multiply)
//   main loop      mla/mma_sync.h (decode_piece), common/bf16_product.h (multiply)
//   epilogue       mla/mma_sync.h (decode_piece), mla/layer_mma_sync.h (add_parts)
//
// Absorbed form: keys are W_k c and values W_v c of a cached latent c (512 columns), so q (W_k c) = (W_k^T q) c, and the mean of
// W_v c is W_v of the mean. The cache is read once, as keys and values of one head that all query heads share.
//
//   1 kv_row = x kv_down^T        2 latent query = x q_down^T        3 q = latent query q_up^T
//   4 absorbed queries = q's first 128 columns times W_k, per head, into the first 512 of 576 columns
//   5 one kernel: rotate q's other 64 columns into the rest; append kv_row to the cache; rotate the cached rotary columns into an
//     array of their own; pages in order (mla/layer_kernels.h)
//   6 attention (mla/mma_sync.h, tile of 32 rows), which takes the last 64 columns of keys from that array
//   7 heads = latent outputs times W_v^T, per head        8 y = heads wo^T
//
// Products (mla/layer_mma_sync.h) are tiles of 128 x 128 on mma.sync.m16n8k16, double-buffered by cp.async. A batch of 128 reads each
// weight once. Those with few tiles (1, 2, 8) cut K into parts, which a second kernel adds in a fixed order: results repeat to the bit.
//
// Attention: four blocks have the heads of a request, 32 each, and read the same tokens, which meet in L2. Tile and balance are those of
// mla_decode/mma_sync.cu.
//
// Shapes: those of kernel.h with dim and q_rank multiples of 8, max_len of 64, 16-byte aligned tensors.
// Limits: weights at the speed of memory (374 MB in the challenge's shapes), then the attention's. The cached rotary columns are read
// and written once more. Hopper has wgmma_absorbed.cu.
#include "kernel.h"

#include <cstdint>

#include "common/device.h"
#include "mla/call.h"
#include "mla/layer_kernels.h"
#include "mla/layer_mma_sync.h"
#include "mla/mma_sync.h"
#include "room.h"

using namespace mla;

namespace {

constexpr int kHeads = 128, kNope = 128, kQuery = 192, kValue = 128, kMap = 256;  // columns of a head; rows of its maps
constexpr size_t kPlaneBytes = size_t{64} << 20;

bool supported(int batch, int dim, int q_rank, int length, int max_len) {
    if (batch < 1 || dim < 8 || dim % 8 != 0 || q_rank < 8 || q_rank % 8 != 0) return false;
    if (length < 0 || length >= max_len || max_len % kPage != 0) return false;
    return static_cast<long long>(batch) * max_len <= 0x7fffffffLL;
}

}  // namespace

extern "C" int amd_mla_decode(
    const void* x, const void* q_down, const void* q_up, const void* kv_down, const void* kv_up, const void* wo,
    void* kv_cache, void* y, void* kv_row, int batch, int dim, int q_rank, int length, int max_len, void* workspace,
    size_t workspace_bytes, void* queue) {
    if (!supported(batch, dim, q_rank, length, max_len)) return kUnsupportedShape;
    const void* const tensors[] = {x, q_down, q_up, kv_down, kv_up, wo, kv_cache, y, kv_row};
    for (const void* tensor : tensors) {
        if (!DecodeCall::aligned(tensor)) return kUnsupportedShape;
    }
    const int pages = length / kPage + 1;
    const size_t requests = static_cast<size_t>(batch), rows = requests * kHeads;
    Room room(workspace, workspace_bytes);
    float* const planes = room.take<float>(kPlaneBytes / sizeof(float));
    uint16_t* const latent_query = room.take<uint16_t>(requests * static_cast<size_t>(q_rank));
    uint16_t* const q = room.take<uint16_t>(rows * kQuery);
    uint16_t* const queries = room.take<uint16_t>(rows * kWidth);
    uint16_t* const outputs = room.take<uint16_t>(rows * kLatent);
    uint16_t* const heads = room.take<uint16_t>(rows * kValue);
    float* const lse = room.take<float>(rows);
    int* const block_table = room.take<int>(requests * static_cast<size_t>(pages));
    int* const seqlens = room.take<int>(requests);
    uint8_t* const rotary = room.take<uint8_t>(requests * static_cast<size_t>(pages) * kPage * 128);
    if (!room.enough()) return kWorkspaceTooSmall;

    int status = 0;
    const int multiprocessors = ::multiprocessors(status);
    const auto multiply = [&](const LayerProduct& p) {
        if (status != 0) return;
        status = p.plain ? launch_tile_product<true>(p, multiprocessors, planes, kPlaneBytes, queue)
                         : launch_tile_product<false>(p, multiprocessors, planes, kPlaneBytes, queue);
    };
    constexpr long long kMapStep = kMap * kLatent, kRow = kHeads;  // between heads' maps; heads of a request
    multiply({x, kv_down, kv_row, batch, kWidth, dim, dim, dim, kWidth});
    multiply({x, q_down, latent_query, batch, q_rank, dim, dim, dim, q_rank});
    multiply({latent_query, q_up, q, batch, kHeads * kQuery, q_rank, q_rank, q_rank, kHeads * kQuery});
    multiply(
        {q, kv_up, queries, batch, kLatent, kNope, kRow * kQuery, kLatent, kRow * kWidth, true, kHeads, kQuery,
         kMapStep, kWidth});
    if (status != 0) return status;

    const auto bytes = [](void* tensor) { return static_cast<uint8_t*>(tensor); };
    const LayerInputs inputs = {bytes(q), bytes(queries), bytes(kv_row), bytes(kv_cache), rotary,  block_table,
                                seqlens,  batch,          kHeads,        length,          max_len, pages};
    status = launch_prepare_attention(inputs, queue);
    if (status != 0) return status;

    const DecodeCall call = {
        queries, kv_cache, block_table,         seqlens, outputs, lse, batch, 1, kHeads, batch * pages,
        pages,   0,        1.0f / 13.856406461f};  // sqrt(192)
    auto a = call.arguments<DecodeArguments>();
    a.rotary = rotary;
    using Tile = DecodeTile<2, 1, 2, 2, true, 1, true>;
    status = launch_latent<Tile>(a, reinterpret_cast<void*>(room.at), room.end - room.at, queue);
    const uint8_t* const value_maps = static_cast<const uint8_t*>(kv_up) + kNope * kLatent * 2;
    multiply(
        {outputs, value_maps, heads, batch, kValue, kLatent, kRow * kLatent, kLatent, kRow * kValue, false, kHeads,
         kLatent, kMapStep, kValue});
    multiply({heads, wo, y, batch, dim, kHeads * kValue, kHeads * kValue, kHeads * kValue, dim});
    return status;
}
