// SPDX-License-Identifier: MIT
//!KERNEL summary TMA rings for K and V, wgmma with P in registers, softmax beside products within and between warpgroups
//!KERNEL arch sm_90a
//!KERNEL tune KEYS_64=128,192
//!KERNEL tune KEYS_128=176,128
//!KERNEL tune KEYS_128_CAUSAL=128,176
//!KERNEL tune KEYS_256=80
//!KERNEL tune CAUSAL_BLOCKS=0,1
//!KERNEL tune EARLY_START=1,0
#include "kernel.h"

#include <type_traits>

#include "tile/wgmma_flash_launch.h"

#ifndef GROUPS_64
#define GROUPS_64 3
#endif
#ifndef KEYS_64
#define KEYS_64 128
#endif
#ifndef KEYS_128
#define KEYS_128 176
#endif
#ifndef KEYS_128_CAUSAL
#define KEYS_128_CAUSAL 128
#endif
#ifndef KEYS_256
#define KEYS_256 80
#endif
#ifndef TURNS_64
#define TURNS_64 3
#endif
#ifndef TURNS_128
#define TURNS_128 3
#endif
#ifndef TURNS_256
#define TURNS_256 3
#endif
#ifndef EARLY_64
#define EARLY_64 1
#endif
#ifndef EARLY_128
#define EARLY_128 1
#endif
#ifndef EARLY_256
#define EARLY_256 1
#endif
#ifndef SLACK
#define SLACK 8
#endif
#ifndef POLYNOMIAL_64
#define POLYNOMIAL_64 0
#endif
#ifndef POLYNOMIAL_128
#define POLYNOMIAL_128 0
#endif
#ifndef HELD_64
#define HELD_64 0
#endif
#ifndef HELD_128
#define HELD_128 0
#endif
#ifndef PAIR_128
#define PAIR_128 1
#endif
#ifndef PAIR_256
#define PAIR_256 1
#endif
#ifndef SMALL_TILES
#define SMALL_TILES 1
#endif
#ifndef SMALL_KEYS
#define SMALL_KEYS 128
#endif
#ifndef CAUSAL_BLOCKS
#define CAUSAL_BLOCKS 0
#endif
#ifndef FULL_BLOCKS
#define FULL_BLOCKS 0
#endif

namespace {

template <typename Element, int kHeadDim>
struct Instances;

template <typename Element>
struct Instances<Element, 64> {
    using Full = FlashShape<Element, 64, GROUPS_64, KEYS_64, TURNS_64, EARLY_64, SLACK, POLYNOMIAL_64, HELD_64>;
    using Causal = Full;
    using Few = FlashShape<Element, 64, 1, SMALL_KEYS, false, EARLY_64, SLACK>;
};
template <typename Element>
struct Instances<Element, 128> {
    using Full = FlashShape<Element, 128, 2, KEYS_128, TURNS_128, EARLY_128, SLACK, POLYNOMIAL_128, false, PAIR_128>;
    using Causal = FlashShape<Element, 128, 2, KEYS_128_CAUSAL, TURNS_128, EARLY_128, SLACK, POLYNOMIAL_128, HELD_128>;
    using Few = FlashShape<Element, 128, 1, SMALL_KEYS, false, EARLY_128, SLACK>;
};
template <typename Element>
struct Instances<Element, 256> {
    using Full = FlashShape<Element, 256, 2, KEYS_256, TURNS_256, EARLY_256, SLACK, 0, false, PAIR_256>;
    using Causal = FlashShape<Element, 256, 2, KEYS_256, TURNS_256, EARLY_256, SLACK>;
    using Few = FlashShape<Element, 256, 1, KEYS_256, false, EARLY_256, SLACK>;
};

/// wgmma, or the tiles for few queries on mma.sync: where a head has no more queries than theirs, where they all run at once,
/// and where keys must be split to fill the device.
template <typename Element, int kHeadDim>
int choose(const ForwardArguments& a, void* workspace, size_t workspace_bytes, void* queue) {
    using Few = typename Choice<Element, kHeadDim>::Few;
    int error = 0;
    const int multiprocessors = count_multiprocessors(&error);
    if (error != 0) return error;
    const Plan<Few> few(a, multiprocessors, kFewCost, workspace_bytes);
    const bool at_once = few.units <= multiprocessors && few.splits == 1;
    if (SMALL_TILES && at_once) {
        return launch_flash<typename Instances<Element, kHeadDim>::Few>(a, TileOrder::kOwnBlocks, multiprocessors, queue);
    }
    if (a.seqlen_q <= Few::kQueries || at_once || few.splits > 2) return launch<Few>(a, few, workspace, queue);
    const TileOrder order =
        (a.causal ? CAUSAL_BLOCKS : FULL_BLOCKS) ? TileOrder::kOwnBlocks : TileOrder::kPersistent;
    if (a.causal) return launch_flash<typename Instances<Element, kHeadDim>::Causal>(a, order, multiprocessors, queue);
    return launch_flash<typename Instances<Element, kHeadDim>::Full>(a, order, multiprocessors, queue);
}

template <typename Element>
int dispatch(int head_dim, const ForwardArguments& a, void* workspace, size_t workspace_bytes, void* queue) {
    switch (head_dim) {
        case 64: return choose<Element, 64>(a, workspace, workspace_bytes, queue);
        case 128: return choose<Element, 128>(a, workspace, workspace_bytes, queue);
        case 256: return choose<Element, 256>(a, workspace, workspace_bytes, queue);
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
    return half != 0 ? dispatch<Fp16>(head_dim, a, workspace, workspace_bytes, queue)
                     : dispatch<Bf16>(head_dim, a, workspace, workspace_bytes, queue);
}
