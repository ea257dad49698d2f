// SPDX-License-Identifier: MIT
//!KERNEL summary flash_attention/wgmma_tma over packed sequences: tiles listed on the device, boxes that end with a sequence
//!KERNEL arch sm_90a
//!KERNEL tune EARLY_START=1,0
//!KERNEL tune SHARE_TILES=7,0,2,4
//
//   producer loop  attention/forward.h (produce_flash, produce_values)
//   main loop      attention/forward_mainloop.h (consume_flash)
//   epilogue       attention/forward_varlen.h (finish_rows, store_rows)
//
// Attention forward over packed sequences for Hopper. Producers, consumers, products and softmax are flash_attention/wgmma_tma's
// (attention/forward.h); what differs (attention/forward_varlen.h):
//
// Order. A first kernel lists the tiles of all sequences in the workspace (attention/varlen.h): in sections whose keys and values
// L2 holds, the longest sequences first, within them by the steps of keys a tile takes, the longest first. As many blocks as
// multiprocessors then take (tile, head) by a count, each when it is ready for one; neighbours in the count are heads of one
// tile. The host does not know the lengths. Up to 32 sequences with few tiles have no list: each block works out its share of
// them (SHARE_TILES: up to how many).
//
// Boxes. TMA's coordinates are such that a box reads zeros behind its sequence (common/tensor_map.h): keys of the next
// sequence, or NaN behind the last, never meet a probability of 0. No box lies wholly behind its sequence: the H200 reads there,
// and fails where no memory is mapped. Rows of a tile behind a sequence are never stored.
//
//   head_dim  longest sequence   queries x keys   stages K, V   turns
//       64    up to 4096 keys      256 x  64          5, 5       yes
//       64    more                 192 x 128          3, 3       yes
//      128    any                  128 x 128          3, 2       no
//      256    causal, over 2048    128 x  80          2, 2       no
//      256    other                128 x  64          2, 2       no      a spare place for queries
//
// Where no sequence has more than 64 queries, mma_sync's tiles take over, whose rows are filled with heads that share keys.
//
// Shapes: all of kernel.h with softmax_scale > 0, 16-byte aligned tensors and a workspace of 32 bytes per possible tile. Results
// repeat to the bit.
#include "kernel.h"

#include "attention/forward_varlen.h"

using namespace attention;

namespace {

struct Longest {
    int queries, keys;  // of a sequence
};

template <class Element, int kHeadDim, int kGroups, int kKeys, int kOptions, int kKeyStages, int kValueStages>
using Tile = FlashShape<
    Element, kHeadDim, kGroups, kKeys, kOptions | kFlashSeamless, kKeyStages, kValueStages, 24, SequenceSchedule>;

template <class Element, int kHeadDim>
int choose(VarlenArguments a, const VarlenBatch& batch, Longest longest, const FlashLaunch& to) {
    using Few = PackedTile<typename Choice<Element, kHeadDim>::Few>;
    if (longest.queries <= Few::kQueries) {
        a.pack = most_heads_packed(a.heads_q / a.heads_k, Few::kQueries);
        return launch_sequences<Few>(
            a, batch, longest.keys, to.multiprocessors, to.workspace, to.workspace_bytes, to.queue);
    }
    const auto launch = [&](auto tile) { return launch_wgmma_sequences<decltype(tile)>(a, batch, longest.keys, to); };
    if constexpr (kHeadDim == 64) {
        constexpr int kOptions = kFlashPingPong | kFlashTwoQueries | kFlashClears;  // here faster than to overwrite
        if (longest.keys > 4096) return launch(Tile<Element, 64, 3, 128, kOptions, 3, 3>());
        return launch(Tile<Element, 64, 4, 64, kOptions, 5, 5>());
    } else if constexpr (kHeadDim == 128) {
        return launch(Tile<Element, 128, 2, 128, kFlashTwoQueries, 3, 2>());
    } else {
        constexpr int kCausal = kFlashQueriesOnce | kFlashStoreSoon;
        if (a.causal && longest.keys > 2048) return launch(Tile<Element, 256, 2, 80, kCausal, 2, 2>());
        if (a.causal) return launch(Tile<Element, 256, 2, 64, kCausal | kFlashSpareQuery | kFlashLastFirst, 2, 2>());
        return launch(Tile<Element, 256, 2, 64, kFlashSpareQuery | kFlashStoreLate, 2, 2>());
    }
}

template <class Element>
int dispatch(int head_dim, const VarlenArguments& a, const VarlenBatch& batch, Longest longest, const FlashLaunch& to) {
    switch (head_dim) {
        case 64: return choose<Element, 64>(a, batch, longest, to);
        case 128: return choose<Element, 128>(a, batch, longest, to);
        case 256: return choose<Element, 256>(a, batch, longest, to);
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
    int error = 0;
    const FlashLaunch to = {count_multiprocessors(&error), workspace, workspace_bytes, queue};
    if (error != 0) return error;
    const Longest longest = {max_seqlen_q, max_seqlen_k};
    return half != 0 ? dispatch<Fp16>(head_dim, a, sequences, longest, to)
                     : dispatch<Bf16>(head_dim, a, sequences, longest, to);
}
