// SPDX-License-Identifier: MIT
// FlashAttention-2 forward on mma.sync: the tensor core instructions that Ada and Hopper share.
//
//!KERNEL summary FlashAttention-2 on mma.sync.m16n8k16, cp.async double buffering, online softmax in registers
//!KERNEL arch sm_89 sm_90a
//
//   producer loop  attention/mma_sync_forward.h (flash_forward)
//   main loop      attention/mma_sync_forward.h (flash_forward)
//   epilogue       attention/mma_sync_forward.h (store_output)
//
// Algorithm. One block owns a tile of query rows of one head and walks over the keys in tiles. Each warp keeps 16 or 32
// rows: S = Q K^T accumulates in registers; the online softmax runs on these registers in the exp2 domain (row maxima need
// two shuffles, row sums stay per lane until the end); P is rounded to 16 bits in place, where two neighbouring
// accumulators already are the A fragment of O += P V. S and P never leave the registers. Key tiles that no row masks
// come first and run a loop without mask code; the last ones (sequence end, causal diagonal) run the masked loop.
//
// Memory. K and V tiles are double-buffered: the copy of tile n+1 (cp.async, 16 bytes, zero-fill behind the end, so that a
// masked probability of 0 never meets a NaN) runs under the products of tile n; one barrier per tile. Hopper's tile for
// head_dim 256 has one stage: V is copied under Q K^T, the next K under P V, two barriers per tile, and two blocks of four warps
// that are not in step with each other. Rows are swizzled by 16-byte chunks (common/wide_rows.h), so that ldmatrix, also the
// transposing one for V, is free of bank conflicts.
//
//   tile      head_dim   queries x keys   warps x rows   Q from      blocks/SM   shared memory
//   Hopper        64        128 x 64         4 x 32      registers       2          48 KB
//   Hopper       128        128 x 64         4 x 32      shared          2          96 KB
//   Hopper       256         64 x 80         4 x 16      shared          2         112 KB
//   Ada           64        128 x 64         8 x 16      registers       2          48 KB
//   Ada          128        128 x 64         8 x 16      registers       1          96 KB
//   Ada          256         64 x 32         4 x 16      shared          1          96 KB
//   few rows      64         64 x 64         4 x 16      registers    3 (Ada 2)     40 KB
//   few rows     128         64 x 64         4 x 16      registers    2 (Ada 1)     80 KB
//   few rows     256         64 x 32         4 x 16      shared       2 (Ada 1)     96 KB
//
// 32 rows per warp halve the shared-memory reads per product: Hopper's mma.sync would otherwise wait for them. Ada's tensor
// cores are four times slower against the same shared memory and only 99 KB fit, so it takes 16 rows and Q in registers. A
// build for Ada has both: a device with Hopper's shared memory gets Hopper's tiles.
//
// Order. Blocks of one head are neighbours (K and V stay in L2); causal tiles start with the longest.
//
// Few queries. Where even tiles of 64 rows all run at once, one per multiprocessor, halves of tiles finish sooner than whole
// ones; and where a head has no more than 64 queries, the rest of a tile would be waste: there the heads that read the same
// keys share tiles, whose rows are then pairs of a query and a head, as many heads as take the fewest tiles. Warps without a
// row only copy.
// Where query tiles cannot fill the device and the workspace allows, keys are split between blocks and merged by a second
// kernel.
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors.
// Limits: mma.sync reaches about 60 % of Hopper's wgmma rate, and nothing overlaps softmax with products inside a warp.
#include "kernel.h"

#include "attention/mma_sync_launch.h"

using namespace attention;

namespace {

/// Whole tiles, or those for few queries: where more rows than theirs would be empty, or where they all run at once
/// and ask for no splits (with splits whole tiles fill the device as well).
template <typename Element, int kHeadDim>
int choose(const ForwardArguments& a, void* workspace, size_t workspace_bytes, void* queue) {
    using Tiles = Choice<Element, kHeadDim>;
    using Hopper = typename Tiles::Hopper;
    using Few = typename Tiles::Few;
    int error = 0;
    const int multiprocessors = count_multiprocessors(&error);
    if (error != 0) return error;
    if (a.seqlen_q <= Few::kQueries) return launch_packed<Few>(a, multiprocessors, workspace, workspace_bytes, queue);
    const Plan<Few> few(a, multiprocessors, kFewCost, workspace_bytes);
    if (few.units <= multiprocessors && few.splits == 1) {
        return launch<Few>(a, few, workspace, queue);
    }
    const bool room = has_room(&error);
    if (error != 0) return error;
    if constexpr (!kHopper) {
        using Ada = typename Tiles::Ada;
        static_assert(Ada::kSharedBytes <= 99 * 1024 && Few::kSharedBytes <= 99 * 1024, "Ada offers a block 99 KB");
        if (!room) return launch<Ada>(a, Plan<Ada>(a, multiprocessors, kWholeCost, workspace_bytes), workspace, queue);
    }
    return launch<Hopper>(a, Plan<Hopper>(a, multiprocessors, kWholeCost, workspace_bytes), workspace, queue);
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
