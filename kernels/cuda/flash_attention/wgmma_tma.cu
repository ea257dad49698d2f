// SPDX-License-Identifier: MIT
//!KERNEL summary TMA rings for K and V, wgmma, P in registers or shared memory, softmax beside products of its own and others
//!KERNEL arch sm_90a
//!KERNEL tune SLACK=24,0
//!KERNEL tune EARLY_START=1,0
//!KERNEL tune SEAMLESS=1,0
//!KERNEL tune PACK_HEADS=1,0
//
//   producer loop  attention/forward.h (produce_flash, produce_values)
//   main loop      attention/forward_mainloop.h (consume_flash)
//   epilogue       attention/forward_softmax.h (finish_rows, store_rows), attention/forward_split.h
//
// FlashAttention forward for Hopper: what H100 and H200 have for it, and mma_sync.cu does without.
//
// Algorithm. A block holds a tile of query rows of one head and walks over the keys from the last it sees to the first. One
// thread decides on tiles, tells all others through shared memory, and has TMA load queries and fill a ring with tiles of K;
// another one fills a ring with tiles of V. Consumer warpgroups of 64 rows each multiply S = Q K^T (wgmma, both operands in
// shared memory), turn S into P in registers, which rounded in pairs is the A operand of O += P V (V is the transposed B
// operand, straight from shared memory). With 192 keys P finds no room in registers beside S and O: it goes through shared
// memory, where each warp writes, and its products read, its own rows.
//
// Overlap. Within a warpgroup the next S is on its way while P V of the last step runs, with SEAMLESS also from one tile to the
// next, so that a finished O is stored while others multiply. P V is waited for amid a step's exponentials, and P packed beside
// those that follow. Between warpgroups products meet softmax either by themselves or by named barriers that hand on the turn to
// issue them.
//
// Softmax. Beside products an exponential takes 10 cycles of a scheduler instead of 8, and other instructions about twice their
// time, since products take half of the registers' bandwidth: instructions count. So maxima are looked for in a row's first
// step only. After that the row's sum shows whether scores exceed it: up to 2^SLACK (2^15 where P is fp16) nothing is done,
// beyond the warp scales down what it has, and scores of which even fp32 lost the exponentials are computed again by mma.sync,
// by that warp alone (attention/forward_softmax.h).
//
//   head_dim  keys                 queries x keys   stages K, V   turns   order of tiles
//       64    up to 4096           256 x  64           5, 5       yes     equal shares, causal by count
//       64    more                 192 x 192           2, 2       yes     equal shares, causal by count; P in shared memory
//       64    if sooner done       192 x 128           4, 4       yes     equal shares, causal by count
//       64    if sooner done       128 x 128           3, 2       yes     equal shares, causal by length
//      128    up to 1024           128 x 128           3, 2       yes     equal shares, causal pairs
//      128    more                 128 x 128           3, 2       no      equal shares, causal by count
//      256    any                  128 x  64           2, 2       no      equal shares, causal pairs
//      all    few tiles, at once    64 x 128 (80)      2, 2               a block per tile
//      all    few queries, split   128 x 128 (64)      3, 2 (2, 3) yes     equal shares, with a seam
//
// At head_dim 64 and 128 there is room for the queries of two tiles. At 256 there is room for those of three warpgroups, which
// take the places in turn, so that one of the two has its queries early: in causal tiles the second one, which has a step more
// and begins alone. They are given back before the last step's softmax, which therefore looks at maxima, too. They leave L2
// first, where keys and values are read again.
//
// End of a tile, 256 columns of output. Its registers go to memory while products run: beside the next tile's second S, or where
// tiles are short and late queries the rule, causal ones, beside the first: the last P V then does not wait for that S.
//
// Order. Persistent blocks with equal shares take heads one after the other, so that K and V of a head are read from L2: causal
// tiles in pairs of a long and a short one. By count a block takes the longest tile left when it is ready for one: a number in
// the workspace, set to zero by a launch of its own (without workspace: pairs). Which block does a tile changes no bit of it.
// A warpgroup lets steps pass of which it sees no key, and tiles in which it has no row.
//
// Few queries (at most 64 of a head) and tiles that must be split to fill the device: heads that read the same keys share tiles of
// 128 rows, and parts of keys are merged by a second kernel (attention/forward_split.h). Fewer rows are left to mma_sync's tiles.
// PACK_HEADS: at head_dim 128 and 256 heads share tiles at any length if that saves a tenth of them.
//
// Registers: the compiler gets 168 (with three consumers 128, with four 96); the producer warpgroup keeps 40 (24 at head_dim 256,
// 32 with more consumers) and a consumer takes 232 (240; 160, 112). EARLY_START launches with programmatic dependence: a block
// sets up its barriers while the previous kernel ends.
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors. Results repeat to the bit.
#include "kernel.h"

#include "attention/forward.h"
#include "attention/forward_split.h"

using namespace attention;

namespace {

constexpr TileOrder kShares = TileOrder::kShares, kCount = TileOrder::kCount, kOwnBlocks = TileOrder::kOwnBlocks;
constexpr int kPingPong = kFlashPingPong, kAlways = SEAMLESS != 0 ? kFlashSeamless : 0;

template <class Element, int kHeadDim, int kGroups, int kKeys, int kOptions, int kKeyStages, int kValueStages>
using Tile = FlashShape<Element, kHeadDim, kGroups, kKeys, kOptions | kAlways, kKeyStages, kValueStages, SLACK>;

/// Tiles at head_dim 64: 256 x 64 or, of more than 4096 keys, 192 x 192; 192 x 128; 128 x 128 of attention/forward_split.h.
enum class Tile64 { kWide, kNarrow, kSmall };

/// Which of them end first. Large tiles are faster, small ones leave fewer multiprocessors idle.
inline Tile64 choose_tile(const ForwardArguments& a, int multiprocessors) {
    const auto predicted = [&](const TileCost& cost) { return predicted_microseconds(a, cost, multiprocessors); };
    const double wide = predicted(a.seqlen_k > 4096 ? TileCost{192, 192, 0.93, 1.5} : TileCost{256, 64, 0.97, 1.0});
    const double narrow = predicted({192, 128, 0.97, 1.1});
    const double small = predicted({128, 128, a.causal ? 1.05 : 1.0, 1.9});
    return small < std::min(wide, narrow) ? Tile64::kSmall : narrow < wide ? Tile64::kNarrow : Tile64::kWide;
}

/// The instances that were best in benchmarks/flash_attention.md; `Parts` is that of attention/forward_split.h.
template <class Element, int kHeadDim, class Parts>
int launch_tiles(const ForwardArguments& a, const FlashLaunch& to) {
    const auto launch = [&](auto tile, TileOrder order) { return launch_flash<decltype(tile)>(a, order, to); };
    if constexpr (kHeadDim == 64) {
        const TileOrder order = a.causal ? kCount : kShares;
        const Tile64 first_done = choose_tile(a, to.multiprocessors);
        if (first_done == Tile64::kSmall) return launch_flash_split<Parts>(a, 1, to);
        if (first_done == Tile64::kNarrow) {
            return launch(Tile<Element, 64, 3, 128, kPingPong | kFlashTwoQueries, 4, 4>(), order);
        }
        if (a.seqlen_k > 4096) {
            return launch(Tile<Element, 64, 3, 192, kPingPong | kFlashTwoQueries | kFlashSharedP, 2, 2>(), order);
        }
        return launch(Tile<Element, 64, 4, 64, kPingPong | kFlashTwoQueries, 5, 5>(), order);
    } else if constexpr (kHeadDim == 128) {
        if (a.seqlen_k <= 1024)
            return launch(Tile<Element, 128, 2, 128, kPingPong | kFlashTwoQueries, 3, 2>(), kShares);
        return launch(Tile<Element, 128, 2, 128, kFlashTwoQueries, 3, 2>(), a.causal ? kCount : kShares);
    } else {
        constexpr int kPlaces = kFlashSpareQuery | kFlashQueriesOnce;
        if (a.causal)
            return launch(Tile<Element, 256, 2, 64, kPlaces | kFlashLastFirst | kFlashStoreSoon, 2, 2>(), kShares);
        return launch(Tile<Element, 256, 2, 64, kPlaces | kFlashStoreLate, 2, 2>(), kShares);
    }
}

/// Where a head has few queries or keys must be split to fill the device: parts, or mma.sync's tiles if rows are few.
template <class Element, int kHeadDim>
int choose(const ForwardArguments& a, void* workspace, size_t workspace_bytes, void* queue) {
    using Few = typename Choice<Element, kHeadDim>::Few;
    int error = 0;
    const int multiprocessors = count_multiprocessors(&error);
    if (error != 0) return error;
    const FlashLaunch to = {multiprocessors, workspace, workspace_bytes, queue};
    const Plan<Few> few(a, multiprocessors, kFewCost, workspace_bytes);
    if (few.units <= multiprocessors && few.splits == 1) {
        using OneConsumer = FlashShape<Element, kHeadDim, 1, kHeadDim == 256 ? 80 : 128, 0, 2, 2, SLACK>;
        return launch_flash<OneConsumer>(a, kOwnBlocks, to);
    }
    constexpr bool kNarrow = kHeadDim == 256;
    using Parts = FlashShape<
        Element, kHeadDim, 2, kNarrow ? 64 : 128, kPingPong | (kNarrow ? 0 : kFlashTwoQueries), kNarrow ? 2 : 3,
        kNarrow ? 3 : 2, SLACK, SplitSchedule>;
    const int filling = heads_that_fill(a);
    if ((a.seqlen_q <= Few::kQueries || few.splits > 2) && a.seqlen_q * filling >= 128) {
        return launch_flash_split<Parts>(a, filling, to);
    }
    if (a.seqlen_q <= Few::kQueries) return launch_packed<Few>(a, multiprocessors, workspace, workspace_bytes, queue);
    if (few.splits > 2) return launch<Few>(a, few, workspace, queue);
    if constexpr (PACK_HEADS && kHeadDim != 64) {
        // Heads share tiles where that saves a tenth of them. Few tiles of a mask come by their length where pairs would leave a
        // fifth of the device idle.
        const int sharing = heads_for_fewest_tiles(a);
        const long long apart = packed_tiles(a, 1);
        if (10 * packed_tiles(a, sharing) <= 9 * apart ||
            (a.causal && a.seqlen_q <= 1024 && pairs_idle(a, multiprocessors, 5))) {
            return launch_flash_split<Parts>(a, sharing, to);
        }
    }
    return launch_tiles<Element, kHeadDim, Parts>(a, to);
}

template <class Element>
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
    const void* q, const void* k, const void* v, void* o, float* lse, int batch, int seqlen_q, int seqlen_k,
    int heads_q, int heads_k, int head_dim, int half, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    ForwardArguments a;
    if (!describe_forward(&a, q, k, v, o, lse, batch, seqlen_q, seqlen_k, heads_q, heads_k, causal, softmax_scale)) {
        return kUnsupportedShape;
    }
    return half != 0 ? dispatch<Fp16>(head_dim, a, workspace, workspace_bytes, queue)
                     : dispatch<Bf16>(head_dim, a, workspace, workspace_bytes, queue);
}
