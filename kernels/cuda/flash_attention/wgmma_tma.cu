// SPDX-License-Identifier: MIT
//!KERNEL summary TMA rings for K and V, wgmma with P in registers, softmax beside products within and between warpgroups
//!KERNEL arch sm_90a
//!KERNEL tune SLACK=8,0
//!KERNEL tune EARLY_START=1,0
//!KERNEL tune SEAMLESS=1,0
//!KERNEL tune HALVES=1,0
//
// FlashAttention forward for Hopper: what H100 and H200 have for it, and mma_sync.cu does without.
//
// Algorithm. A block holds a tile of query rows of one head and walks over the keys from the last it sees to the first. One
// thread decides on tiles, tells all others through shared memory, and has TMA load queries and fill a ring with tiles of K;
// another one fills a ring with tiles of V. Consumer warpgroups of 64 rows each multiply S = Q K^T (wgmma, both operands in
// shared memory), turn S into P in registers, which rounded in pairs is the A operand of O += P V (V is the transposed B
// operand, straight from shared memory).
//
// Overlap. Within a warpgroup the next S is on its way while P V of the last step runs, with SEAMLESS also from one tile to the
// next, so that a finished O is stored while others multiply. Between warpgroups products meet softmax either by themselves or
// by named barriers that hand on the turn to issue them. The correction of O when a row's maximum rises is left out while no
// score exceeds the maximum by 2^SLACK: sums and P grow that far without losing precision, and after the first steps hardly any
// is needed. At head_dim 128 HALVES does a step's softmax in two halves, the maxima of one beside the exponentials of the other.
//
//   head_dim  mask    when                  queries x keys   stages K, V   turns  Q from     order of tiles
//       64    full                             192 x 128        3, 3        yes   shared     equal shares
//       64    causal                           192 x 128        3, 3        yes   shared     by count
//      128    full    up to 1024 keys          128 x 128        3, 3        yes   shared     equal shares
//      128    full    more                     128 x 176        2, 2        no    shared     equal shares
//      128    causal  up to 1024 queries       128 x 128        3, 3        no    registers  equal shares, pairs
//      128    causal  more                     128 x 128        3, 3        no    registers  by count
//      256    full    up to 4096 keys          128 x 64         2, 3        yes   shared     equal shares
//      256    full    more                     128 x 64         2, 3        no    shared     equal shares
//      256    causal                           128 x 64         2, 3        no    shared     equal shares, pairs
//      all    any     few tiles, all at once    64 x 128 (80)   2, 2              shared     a block per tile
//
// At head_dim 64 there is room for the queries of two tiles. Corrections of O happen beside S, but for few tiles at 64 and 128.
//
// Order. Persistent blocks with equal shares take heads one after the other, so that K and V of a head are read from L2: causal
// tiles in pairs of a long and a short one. By count a block takes the longest tile left when it is ready for one: a number in
// the workspace, set to zero by a launch of its own (without workspace: pairs). Which block does a tile changes no bit of it.
// A warpgroup lets steps pass of which it sees no key, and tiles in which it has no row.
//
// Few queries (at most 64 of a head) and keys that must be split to fill the device are left to mma_sync's tiles.
//
// Registers: the compiler gets 168 (128 with three consumers); the producer warpgroup keeps 24 (32) and a consumer takes 240
// (160). EARLY_START launches with programmatic dependence: a block sets up its barriers while the previous kernel ends.
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors. Results repeat to the bit.
#include "kernel.h"

#include "tile/wgmma_flash_launch.h"

#ifndef SLACK
#define SLACK 8
#endif
#ifndef SEAMLESS
#define SEAMLESS 1
#endif
#ifndef HALVES
#define HALVES 2
#endif
#ifndef SHORT
#define SHORT 0
#endif
#if SHORT == 0
#undef SHORT
#define SHORT kTurns | kEarly, 3, 3
#elif SHORT == 1
#undef SHORT
#define SHORT kEarly | kFlashHeldQuery, 3, 3
#elif SHORT == 2
#undef SHORT
#define SHORT kTurns | kEarly | kFlashTwoQueries, 3, 2
#elif SHORT == 3
#undef SHORT
#define SHORT kTurns | kEarly | kFlashHeldQuery, 3, 3
#elif SHORT == 4
#undef SHORT
#define SHORT kEarly | kFlashTwoQueries, 3, 2
#endif
#ifdef G4
#define T64 4, 64
#define S64 5, 5
#else
#define T64 3, 128
#define S64 3, 3
#endif
#ifndef TURN64
#define TURN64 1
#endif
#ifndef CAUS
#define CAUS 0
#endif
#if CAUS == 0
#undef CAUS
#define CAUS kEarly | kFlashHeldQuery, 3, 3
#elif CAUS == 1
#undef CAUS
#define CAUS kTurns | kEarly | kFlashHeldQuery, 3, 3
#elif CAUS == 2
#undef CAUS
#define CAUS kTurns | kEarly | kFlashTwoQueries, 3, 2
#elif CAUS == 3
#undef CAUS
#define CAUS kEarly | kFlashTwoQueries, 3, 2
#endif
#ifndef FULL
#define FULL 0
#endif
#if FULL == 0
#undef FULL
#define FULL 128, 2, 176, kEarly, 2, 2
#elif FULL == 1
#undef FULL
#define FULL 128, 2, 176, kTurns | kEarly, 2, 2
#elif FULL == 2
#undef FULL
#define FULL 128, 3, 80, kEarly, 2, 2
#elif FULL == 3
#undef FULL
#define FULL 128, 3, 80, kEarly, 3, 3
#elif FULL == 4
#undef FULL
#define FULL 128, 2, 192, kEarly, 2, 2
#elif FULL == 5
#undef FULL
#define FULL 128, 2, 144, kEarly, 3, 2
#elif FULL == 6
#undef FULL
#define FULL 128, 2, 128, kEarly | kFlashTwoQueries, 3, 2
#endif

namespace {

constexpr TileOrder kShares = TileOrder::kShares, kCount = TileOrder::kCount, kOwnBlocks = TileOrder::kOwnBlocks;
template <int kHeadDim>
constexpr int kAlways = (SEAMLESS != 0 ? kFlashSeamless : 0) | ((HALVES >> (kHeadDim / 128)) & 1 ? kFlashHalves : 0);

template <class Element, int kHeadDim, int kGroups, int kKeys, int kOptions, int kKeyStages, int kValueStages>
using Tile = FlashShape<Element, kHeadDim, kGroups, kKeys, kOptions | kAlways<kHeadDim>, kKeyStages, kValueStages, SLACK>;

/// The instances that were best in benchmarks/flash_attention.md.
template <class Element, int kHeadDim>
int launch_tiles(const ForwardArguments& a, const FlashLaunch& to) {
    constexpr int kTurns = kFlashTurns, kEarly = kFlashEarlyFactors;
    if constexpr (kHeadDim == 64) {
        using Only = Tile<Element, 64, T64, TURN64 | kEarly | kFlashTwoQueries, S64>;
        return launch_flash<Only>(a, a.causal ? kCount : kShares, to);
    } else if constexpr (kHeadDim == 128) {
        if (a.causal) {
            using Causal = Tile<Element, 128, 2, 128, CAUS>;
            return launch_flash<Causal>(a, a.seqlen_q <= 1024 ? kShares : kCount, to);
        }
        if (a.seqlen_k <= 1024) return launch_flash<Tile<Element, 128, 2, 128, SHORT>>(a, kShares, to);
        return launch_flash<Tile<Element, FULL>>(a, kShares, to);
    } else {
        if (a.causal || a.seqlen_k > 4096) return launch_flash<Tile<Element, 256, 2, 64, kEarly, 2, 3>>(a, kShares, to);
        return launch_flash<Tile<Element, 256, 2, 64, kTurns | kEarly, 2, 3>>(a, kShares, to);
    }
}

/// wgmma, but mma.sync's tiles for few queries where a head has no more queries than theirs and where keys must be split to
/// fill the device.
template <class Element, int kHeadDim>
int choose(const ForwardArguments& a, void* workspace, size_t workspace_bytes, void* queue) {
    using Few = typename Choice<Element, kHeadDim>::Few;
    int error = 0;
    const int multiprocessors = count_multiprocessors(&error);
    if (error != 0) return error;
    const FlashLaunch to = {multiprocessors, workspace, workspace_bytes, queue};
    const Plan<Few> few(a, multiprocessors, kFewCost, workspace_bytes);
    if (few.units <= multiprocessors && few.splits == 1) {
        constexpr bool kWide = kHeadDim == 256;
        using OneConsumer = FlashShape<Element, kHeadDim, 1, kWide ? 80 : 128, kWide ? kFlashEarlyFactors : 0, 2, 2, SLACK>;
        return launch_flash<OneConsumer>(a, kOwnBlocks, to);
    }
    if (a.seqlen_q <= Few::kQueries || few.splits > 2) return launch<Few>(a, few, workspace, queue);
    return launch_tiles<Element, kHeadDim>(a, to);
}

template <class Element>
int dispatch(int head_dim, const ForwardArguments& a, void* workspace, size_t workspace_bytes, void* queue) {
    switch (head_dim) {
#ifdef ONLY
        case ONLY: return choose<Element, ONLY>(a, workspace, workspace_bytes, queue);
#else
        case 64: return choose<Element, 64>(a, workspace, workspace_bytes, queue);
        case 128: return choose<Element, 128>(a, workspace, workspace_bytes, queue);
        case 256: return choose<Element, 256>(a, workspace, workspace_bytes, queue);
#endif
        default: return kUnsupportedShape;
    }
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
#ifdef ONLY
    return dispatch<Bf16>(head_dim, a, workspace, workspace_bytes, queue);
#endif
    return half != 0 ? dispatch<Fp16>(head_dim, a, workspace, workspace_bytes, queue)
                     : dispatch<Bf16>(head_dim, a, workspace, workspace_bytes, queue);
}
