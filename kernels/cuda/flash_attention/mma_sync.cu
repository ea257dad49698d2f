// SPDX-License-Identifier: MIT
// FlashAttention-2 forward on mma.sync: the tensor core instructions that Ada and Hopper share.
//
//!KERNEL summary FlashAttention-2 on mma.sync.m16n8k16, cp.async double buffering, online softmax in registers
//!KERNEL arch sm_89 sm_90a
//!KERNEL tune D64_WARPS=4,8
//!KERNEL tune D128_KEYS=64,48
//!KERNEL tune D256_KEYS=64,32
//
// Algorithm. One block owns a tile of query rows of one head and walks over the keys in tiles. Each warp keeps 16 or 32
// rows: S = Q K^T accumulates in registers; the online softmax runs on these registers in the exp2 domain (row maxima need
// two shuffles, row sums stay per lane until the end); P is rounded to 16 bits in place, where two neighbouring
// accumulators already are the A fragment of O += P V. S and P never leave the registers. Key tiles that no row masks
// come first and run a loop without mask code; the last ones (sequence end, causal diagonal) run the masked loop.
//
// Memory. K and V tiles are double-buffered: the copy of tile n+1 (cp.async, 16 bytes, zero-fill behind the end, so that a
// masked probability of 0 never meets a NaN) runs under the products of tile n; one barrier per tile. Rows are swizzled by
// 16-byte chunks (tile/wide_rows.h), so that ldmatrix, also the transposing one for V, is free of bank conflicts.
//
//   build     head_dim   queries x keys   warps x rows   Q from      blocks/SM   shared memory
//   Hopper        64        128 x 64         4 x 32      registers       2          48 KB
//   Hopper       128        128 x 64         4 x 32      shared          2          96 KB
//   Hopper       256        128 x 64         8 x 16      shared          1         192 KB
//   Ada           64        128 x 64         8 x 16      registers       2          48 KB
//   Ada          128        128 x 64         8 x 16      registers       1          96 KB
//   Ada          256         64 x 32         4 x 16      shared          1          96 KB
//   few rows      64         64 x 64         4 x 16      registers    3 (Ada 2)     40 KB
//   few rows     128         64 x 64         4 x 16      registers    2 (Ada 1)     80 KB
//   few rows     256         64 x 32         4 x 16      shared       2 (Ada 1)     96 KB
//
// 32 rows per warp halve the shared-memory reads per product: Hopper's mma.sync would otherwise wait for them. Ada's tensor
// cores are four times slower against the same shared memory and only 99 KB fit, so it takes 16 rows and Q in registers.
//
// Order. Blocks of one head are neighbours (K and V stay in L2); causal tiles start with the longest.
//
// Few queries. Where even tiles of 64 rows all run at once, one per multiprocessor, halves of tiles finish sooner than whole
// ones; and where a head has no more than 64 queries, the rest of a tile would be waste. Warps without a query only copy.
// Where query tiles cannot fill the device and the workspace allows, keys are split between blocks and merged by a second
// kernel.
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors.
// Limits: mma.sync reaches about 60 % of Hopper's wgmma rate, and nothing overlaps softmax with products inside a warp.
#include "kernel.h"

#include <type_traits>

#include "ceil_div.h"
#include "launch.h"
#include "tile/combine_splits.h"
#include "tile/flash_forward.h"

// Hopper's tiles; their first choices stand in the table above.
#ifndef D64_WARPS
#define D64_WARPS 4
#endif
#ifndef D128_KEYS
#define D128_KEYS 64
#endif
#ifndef D256_KEYS
#define D256_KEYS 64
#endif

namespace {

// The oldest architecture of this build chooses the tiles: nvcc defines the list for host and device passes alike.
constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
constexpr bool kHopper = kArchitectures[0] >= 900;

template <typename Element, int kHeadDim>
struct Choice;

template <typename Element>
struct Choice<Element, 64> {
    using Ada = ForwardTile<Element, 64, 8, 1, 64, true, 2>;
    using Hopper = ForwardTile<Element, 64, D64_WARPS, 8 / D64_WARPS, 64, true, 2>;
    using Few = ForwardTile<Element, 64, 4, 1, 64, true, kHopper ? 3 : 2>;
};
template <typename Element>
struct Choice<Element, 128> {
    using Ada = ForwardTile<Element, 128, 8, 1, 64, true, 1>;
    using Hopper = ForwardTile<Element, 128, 4, 2, D128_KEYS, false, 2>;
    using Few = ForwardTile<Element, 128, 4, 1, 64, true, kHopper ? 2 : 1>;
};
template <typename Element>
struct Choice<Element, 256> {
    using Ada = ForwardTile<Element, 256, 4, 1, 32, false, 1>;
    using Hopper = ForwardTile<Element, 256, 8, 1, D256_KEYS, false, 1>;
    using Few = ForwardTile<Element, 256, 4, 1, 32, false, kHopper ? 2 : 1>;
};

// In key tiles; a merge costs a launch and the round trip of the parts. Tiles of few rows take about half as long.
constexpr SplitCost kWholeCost = {3.0, 4.0, 0.1}, kFewCost = {6.0, 8.0, 0.2};

template <typename Tile>
struct Plan {
    long long rows, units;  // of the output; query tiles
    int splits;

    Plan(const ForwardArguments& a, int multiprocessors, SplitCost cost, size_t workspace_bytes)
        : rows(static_cast<long long>(a.batch) * a.seqlen_q * a.heads_q),
          units(static_cast<long long>(a.batch) * a.heads_q * ceil_div(a.seqlen_q, Tile::kQueries)),
          splits(choose_splits(units, ceil_div(a.seqlen_k, Tile::kKeys), multiprocessors * Tile::kBlocks,
                               SplitWorkspace::capacity(workspace_bytes, rows, Tile::kHeadDim), cost)) {}
};

template <typename Tile>
int launch(ForwardArguments a, const Plan<Tile>& plan, void* workspace, void* queue) {
    static_assert(kHopper || Tile::kSharedBytes <= 99 * 1024, "Ada offers a block 99 KB");
    const auto kernel = flash_forward<Tile>;
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
    if (status != cudaSuccess) return status;

    if (plan.units > 0x7fffffffLL) return kUnsupportedShape;
    a.query_tiles = ceil_div(a.seqlen_q, Tile::kQueries);
    a.splits = plan.splits;
    if (a.splits > 1) a.parts = SplitWorkspace::at(workspace, a.splits, plan.rows, Tile::kHeadDim);
    const dim3 grid(static_cast<unsigned>(plan.units), static_cast<unsigned>(a.splits));
    LAUNCH(kernel, grid, dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
    const int launched = LAUNCH_STATUS();
    if (launched != kOk || a.splits == 1) return launched;
    const CombineArguments<UniformParts> merge = {
        {a.splits, plan.rows}, a.parts, a.o, a.lse, plan.rows, a.seqlen_q, a.heads_q, 1};
    return launch_combine<typename Tile::Element, Tile::kHeadDim>(merge, a.splits, queue);
}

/// Whole tiles, or those for few queries: where more rows than theirs would be empty, or where they all run at once
/// and ask for no splits (with splits whole tiles fill the device as well).
template <typename Element, int kHeadDim>
int choose(const ForwardArguments& a, void* workspace, size_t workspace_bytes, void* queue) {
    using Tiles = Choice<Element, kHeadDim>;
    using Whole = std::conditional_t<kHopper, typename Tiles::Hopper, typename Tiles::Ada>;
    using Few = typename Tiles::Few;
    int device = 0, multiprocessors = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (status != cudaSuccess) return status;
    const Plan<Few> few(a, multiprocessors, kFewCost, workspace_bytes);
    if (a.seqlen_q <= Few::kQueries || (few.units <= multiprocessors && few.splits == 1)) {
        return launch<Few>(a, few, workspace, queue);
    }
    return launch<Whole>(a, Plan<Whole>(a, multiprocessors, kWholeCost, workspace_bytes), workspace, queue);
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

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

extern "C" int flash_attention(
    const void* q, const void* k, const void* v, void* o, float* lse, int batch, int seqlen_q, int seqlen_k, int heads_q,
    int heads_k, int head_dim, int half, int causal, float softmax_scale, void* workspace, size_t workspace_bytes,
    void* queue) {
    if (batch < 1 || seqlen_q < 1 || seqlen_k < 1 || heads_k < 1 || heads_q < 1 || heads_q % heads_k != 0) {
        return kUnsupportedShape;
    }
    if (!(softmax_scale > 0.0f) || !aligned(q) || !aligned(k) || !aligned(v) || !aligned(o)) return kUnsupportedShape;
    ForwardArguments a{};
    a.q = static_cast<const uint8_t*>(q);
    a.k = static_cast<const uint8_t*>(k);
    a.v = static_cast<const uint8_t*>(v);
    a.o = static_cast<uint8_t*>(o);
    a.lse = lse;
    a.batch = batch;
    a.seqlen_q = seqlen_q;
    a.seqlen_k = seqlen_k;
    a.heads_q = heads_q;
    a.heads_k = heads_k;
    a.causal = causal != 0;
    a.scale = softmax_scale * kLog2E;
    return half != 0 ? dispatch<Fp16>(head_dim, a, workspace, workspace_bytes, queue)
                     : dispatch<Bf16>(head_dim, a, workspace, workspace_bytes, queue);
}
