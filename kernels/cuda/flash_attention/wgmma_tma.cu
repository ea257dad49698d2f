// SPDX-License-Identifier: MIT
//!KERNEL summary TMA rings for K and V, wgmma with P in registers, softmax beside products within and between warpgroups
//!KERNEL arch sm_90a
//!KERNEL tune SLACK=8,0
//!KERNEL tune EARLY_START=1,0
//
// FlashAttention forward for Hopper: what H100 and H200 have for it, and mma_sync.cu does without.
//
// Algorithm. A block holds a tile of query rows of one head and walks over the keys from the last it sees to the first. One
// thread has TMA fill two rings of two stages, one with tiles of K and one with tiles of V. Consumer warpgroups of 64 rows
// each multiply S = Q K^T (wgmma, both operands in shared memory), turn S into P in registers, which rounded in pairs is the
// A operand of O += P V (V is the transposed B operand, straight from shared memory).
//
// Overlap. Within a warpgroup the next S is on its way while P V of the last step runs, and a step's softmax runs beside P V.
// Between warpgroups named barriers hand on the turn to issue products (kTurns), so that one's softmax meets the other's
// products. The correction of O when a row's maximum rises is left out while no score exceeds the maximum by 2^SLACK: sums
// and P grow that far without losing precision, and after the first steps hardly any is needed.
//
//   head_dim  mask    when                      queries x keys   turns  correction   Q from     order of tiles
//       64    full                                 192 x 128      yes   beside S     shared     persistent
//       64    causal  up to 16 tiles of 192        128 x 128      yes   before S     registers  persistent, pairs
//       64    causal  more                         192 x 128      yes   before S     shared     a block per tile
//      128    full    more than 1024 keys          128 x 176      yes   beside S     shared     persistent
//      128    full    else                         128 x 128      yes   before S     shared     persistent
//      128    causal                               128 x 128      yes   before S     registers  persistent, pairs
//      256    full                                 128 x 64       no    beside S     shared     persistent
//      256    causal  up to 64 tiles               128 x 64       no    beside S     shared     persistent, pairs
//      256    causal  more                         128 x 80       no    beside S     shared     a block per tile
//      all    any     few tiles, all at once        64 x 128 (80)        before S     shared     a block per tile
//
// Order. Persistent blocks have equal shares, heads one after the other, so that K and V of a head are read from L2: causal
// tiles in pairs of a long and a short one. A block per tile leaves the balance to the hardware, the longest first.
//
// Few queries (at most 64 of a head) and keys that must be split to fill the device are left to mma_sync's tiles.
//
// Registers: the compiler gets 168 (128 with three consumers); the producer warpgroup keeps 24 (32) and a consumer takes 240
// (160). EARLY_START launches with programmatic dependence: a block sets up its barriers while the previous kernel ends.
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors. Results repeat to the bit.
#include "kernel.h"

#include <type_traits>

#include "tile/wgmma_flash_launch.h"

#ifndef SLACK
#define SLACK 8
#endif
// groups keys(3) options(2) key stages, value stages, order
#ifndef F64
#define F64 312843330
#endif
#ifndef C64
#define C64 312859331
#endif
#ifndef F128
#define F128 217651220
#endif
#ifndef C128
#define C128 212854331
#endif
#ifndef F256
#define F256 206450230
#endif
#ifndef C256
#define C256 206418221
#endif

namespace {

constexpr TileOrder kPersistent = TileOrder::kPersistent, kOwnBlocks = TileOrder::kOwnBlocks;

template <class Element, int kHeadDim, long long kCode>
using Coded = FlashShape<Element, kHeadDim, kCode / 100000000, kCode / 100000 % 1000, kCode / 1000 % 100, kCode / 100 % 10, kCode / 10 % 10, SLACK>;

template <class Element, int kHeadDim, long long kFull, long long kCausal>
int launch_coded(const ForwardArguments& a, int multiprocessors, void* workspace, size_t bytes, void* queue) {
    constexpr TileOrder kOrders[] = {kPersistent, TileOrder::kDynamic, kOwnBlocks};
    if (a.causal) return launch_flash<Coded<Element, kHeadDim, kCausal>>(a, kOrders[kCausal % 10], multiprocessors, workspace, bytes, queue);
    return launch_flash<Coded<Element, kHeadDim, kFull>>(a, kOrders[kFull % 10], multiprocessors, workspace, bytes, queue);
}

template <class Element, int kHeadDim>
int launch_tiles(const ForwardArguments& a, int multiprocessors, void* workspace, size_t bytes, void* queue) {
    if constexpr (kHeadDim == 64) return launch_coded<Element, 64, F64, C64>(a, multiprocessors, workspace, bytes, queue);
    else if constexpr (kHeadDim == 128) return launch_coded<Element, 128, F128, C128>(a, multiprocessors, workspace, bytes, queue);
    else return launch_coded<Element, 256, F256, C256>(a, multiprocessors, workspace, bytes, queue);
}

/// wgmma, but mma.sync's tiles for few queries where a head has no more queries than theirs and where keys must be split to
/// fill the device.
template <class Element, int kHeadDim>
int choose(const ForwardArguments& a, void* workspace, size_t workspace_bytes, void* queue) {
#if defined(ONLY_DIM)
    {
        int error = 0;
        const int multiprocessors = count_multiprocessors(&error);
        return error != 0 ? error : launch_tiles<Element, kHeadDim>(a, multiprocessors, workspace, workspace_bytes, queue);
    }
#else
    using Few = typename Choice<Element, kHeadDim>::Few;
    int error = 0;
    const int multiprocessors = count_multiprocessors(&error);
    if (error != 0) return error;
    const Plan<Few> few(a, multiprocessors, kFewCost, workspace_bytes);
    if (few.units <= multiprocessors && few.splits == 1) {
        using OneConsumer = FlashShape<Element, kHeadDim, 1, kHeadDim == 256 ? 80 : 128, kHeadDim == 256 ? kFlashEarlyFactors : 0>;
        return launch_flash<OneConsumer>(a, kOwnBlocks, multiprocessors, workspace, workspace_bytes, queue);
    }
    if (a.seqlen_q <= Few::kQueries || few.splits > 2) return launch<Few>(a, few, workspace, queue);
    return launch_tiles<Element, kHeadDim>(a, multiprocessors, workspace, workspace_bytes, queue);
#endif
}

template <class Element>
int dispatch(int head_dim, const ForwardArguments& a, void* workspace, size_t workspace_bytes, void* queue) {
#if defined(ONLY_DIM)
    return head_dim == ONLY_DIM ? choose<Element, ONLY_DIM>(a, workspace, workspace_bytes, queue) : kUnsupportedShape;
#else
    switch (head_dim) {
        case 64: return choose<Element, 64>(a, workspace, workspace_bytes, queue);
        case 128: return choose<Element, 128>(a, workspace, workspace_bytes, queue);
        case 256: return choose<Element, 256>(a, workspace, workspace_bytes, queue);
        default: return kUnsupportedShape;
    }
#endif
}

}  // namespace

extern "C" int flash_attention(
    const void* q, const void* k, const void* v, void* o, float* lse, int batch, int seqlen_q, int seqlen_k, int heads_q,
    int heads_k, int head_dim, int half, int causal, float softmax_scale, void* workspace, size_t workspace_bytes,
    void* queue) {
    ForwardArguments a;
    if (!describe_forward(
            &a, q, k, v, o, lse, batch, seqlen_q, seqlen_k, heads_q, heads_k, causal, softmax_scale)) {
        return kUnsupportedShape;
    }
#if defined(ONLY_DIM)
    return half != 0 ? kUnsupportedShape : dispatch<Bf16>(head_dim, a, workspace, workspace_bytes, queue);
#else
    return half != 0 ? dispatch<Fp16>(head_dim, a, workspace, workspace_bytes, queue)
                     : dispatch<Bf16>(head_dim, a, workspace, workspace_bytes, queue);
#endif
}
