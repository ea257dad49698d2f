// SPDX-License-Identifier: MIT
// Attention forward over packed sequences on mma.sync: the tensor core instructions that Ada and Hopper share.
//
//!KERNEL summary flash_attention/mma_sync over packed sequences: tiles listed on the device, the longest first
//!KERNEL arch sm_89 sm_90a
//
//   producer loop  attention/mma_sync_forward.h (flash_forward)
//   main loop      attention/mma_sync_forward.h (flash_forward)
//   epilogue       attention/mma_sync_forward.h (store_output)
//
// The tiles (those of the build's oldest architecture), the products and the softmax are flash_attention/mma_sync.cu's. What differs is where a block finds its work: a
// first kernel lists the tiles of all sequences in the workspace, sorted by their steps of keys (attention/varlen.h), and a
// block of the second takes one of them for one head. The host does not know the lengths, so it starts as many blocks as
// there could be tiles, queries / tile + sequences; those without one end at once. Neighbouring blocks take the same tile of
// neighbouring heads.
//
// Copies of keys and values end with the sequence and fill the rest of a tile with zeros, so that nothing behind it, NaN
// included, meets a probability of 0. Rows of a tile behind the sequence are never stored.
//
// Where no sequence has more than 64 queries, tiles of 64 rows are filled with the heads that read the same keys: a row is a
// pair of a query and one of a power of two of heads. Where there are too few tiles to fill the device, keys are cut into parts of
// one length, by the longest sequence, which blocks of their own take and a third kernel merges.
//
// Shapes: all of kernel.h with softmax_scale > 0, 16-byte aligned tensors and a workspace of 32 bytes per possible tile.
#include "kernel.h"

#include <type_traits>

#include "attention/varlen.h"

using namespace attention;

namespace {

struct Longest {
    int queries, keys;  // of a sequence
};

template <typename Element, int kHeadDim>
int choose(
    VarlenArguments a, const VarlenBatch& batch, Longest longest, void* workspace, size_t workspace_bytes,
    void* queue) {
    using Tiles = Choice<Element, kHeadDim>;
    using Whole = std::conditional_t<kHopper, typename Tiles::Hopper, typename Tiles::Ada>;
    using Few = PackedTile<typename Tiles::Few>;
    int error = 0;
    const int multiprocessors = count_multiprocessors(&error);
    if (error != 0) return error;
    const auto launch = [&](auto tile) {
        return launch_sequences<decltype(tile)>(
            a, batch, longest.keys, multiprocessors, workspace, workspace_bytes, queue);
    };
    if (longest.queries <= Few::kQueries) {
        a.pack = most_heads_packed(a.heads_q / a.heads_k, Few::kQueries);
        return launch(Few());
    }
    return launch(Whole());
}

template <typename Element>
int dispatch(
    int head_dim, const VarlenArguments& a, const VarlenBatch& batch, Longest longest, void* workspace,
    size_t workspace_bytes, void* queue) {
    switch (head_dim) {
        case 64: return choose<Element, 64>(a, batch, longest, workspace, workspace_bytes, queue);
        case 128: return choose<Element, 128>(a, batch, longest, workspace, workspace_bytes, queue);
        case 256: return choose<Element, 256>(a, batch, longest, workspace, workspace_bytes, queue);
        default: return kUnsupportedShape;
    }
}

}  // namespace

extern "C" int flash_attention_varlen(
    const void* q, const void* k, const void* v, const int* cu_seqlens_q, const int* cu_seqlens_k, void* o, float* lse,
    int batch, int total_q, int total_k, int max_seqlen_q, int max_seqlen_k, int heads_q, int heads_k, int head_dim,
    int half, int causal, float softmax_scale, void* workspace, size_t workspace_bytes, void* queue) {
    VarlenArguments a{};
    VarlenBatch sequences{};
    if (!describe_varlen(
            &a, &sequences, q, k, v, cu_seqlens_q, cu_seqlens_k, o, lse, batch, total_q, total_k, heads_q, heads_k,
            causal, softmax_scale)) {
        return kUnsupportedShape;
    }
    const Longest longest = {max_seqlen_q, max_seqlen_k};
    return half != 0 ? dispatch<Fp16>(head_dim, a, sequences, longest, workspace, workspace_bytes, queue)
                     : dispatch<Bf16>(head_dim, a, sequences, longest, workspace, workspace_bytes, queue);
}
