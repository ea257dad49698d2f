// SPDX-License-Identifier: MIT
// FlashAttention-2 forward on mma.sync: the tensor core instructions that Ada and Hopper share.
//
//!KERNEL summary FlashAttention-2 on mma.sync.m16n8k16, cp.async double buffering, online softmax in registers
//!KERNEL arch sm_89 sm_90a
//!KERNEL tune D64_WARPS=4,8
//!KERNEL tune D64_KEYS=64,32
//!KERNEL tune D64_BLOCKS=2,3
//!KERNEL tune D128_WARPS=4,8
//!KERNEL tune D128_KEYS=64,48,32
//!KERNEL tune D256_WARPS=8,4
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
//
// 32 rows per warp halve the shared-memory reads per product: Hopper's mma.sync would otherwise wait for them. Ada's tensor
// cores are four times slower against the same shared memory and only 99 KB fit, so it takes 16 rows and Q in registers.
//
// Order. Blocks of one head are neighbours (K and V stay in L2); causal tiles start with the longest. Where the query tiles
// cannot fill the device and the workspace allows, keys are split between blocks and merged by a second kernel.
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
#ifndef D64_KEYS
#define D64_KEYS 64
#endif
#ifndef D64_BLOCKS
#define D64_BLOCKS 2
#endif
#ifndef D128_WARPS
#define D128_WARPS 4
#endif
#ifndef D128_KEYS
#define D128_KEYS 64
#endif
#ifndef D256_WARPS
#define D256_WARPS 8
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
    using Hopper = ForwardTile<Element, 64, D64_WARPS, 8 / D64_WARPS, D64_KEYS, true, D64_BLOCKS>;
};
template <typename Element>
struct Choice<Element, 128> {
    using Ada = ForwardTile<Element, 128, 8, 1, 64, true, 1>;
    using Hopper = ForwardTile<Element, 128, D128_WARPS, 8 / D128_WARPS, D128_KEYS, false, 2>;
};
template <typename Element>
struct Choice<Element, 256> {
    using Ada = ForwardTile<Element, 256, 4, 1, 32, false, 1>;
    using Hopper = ForwardTile<Element, 256, D256_WARPS, 1, D256_KEYS, false, 8 / D256_WARPS>;
};

// In key tiles; a merge costs a launch and the round trip of the parts.
constexpr SplitCost kSplitCost = {3.0, 4.0, 0.1};

template <typename Element, int kHeadDim>
int launch(ForwardArguments a, void* workspace, size_t workspace_bytes, void* queue) {
    using Tiles = Choice<Element, kHeadDim>;
    using Tile = std::conditional_t<kHopper, typename Tiles::Hopper, typename Tiles::Ada>;
    static_assert(kHopper || Tile::kSharedBytes <= 99 * 1024, "Ada offers a block 99 KB");
    const auto kernel = flash_forward<Tile>;
    int device = 0, multiprocessors = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (status == cudaSuccess) {
        status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
    }
    if (status != cudaSuccess) return status;

    a.query_tiles = ceil_div(a.seqlen_q, Tile::kQueries);
    const long long rows = static_cast<long long>(a.batch) * a.seqlen_q * a.heads_q;
    const long long units = static_cast<long long>(a.batch) * a.heads_q * a.query_tiles;
    if (units > 0x7fffffffLL) return kUnsupportedShape;
    a.splits = choose_splits(units, ceil_div(a.seqlen_k, Tile::kKeys), multiprocessors * Tile::kBlocks,
                             SplitWorkspace::capacity(workspace_bytes, rows, kHeadDim), kSplitCost);
    if (a.splits > 1) a.parts = SplitWorkspace::at(workspace, a.splits, rows, kHeadDim);
    const dim3 grid(static_cast<unsigned>(units), static_cast<unsigned>(a.splits));
    LAUNCH(kernel, grid, dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
    const int launched = LAUNCH_STATUS();
    if (launched != kOk || a.splits == 1) return launched;
    const CombineArguments<UniformParts> merge = {
        {a.splits, rows}, a.parts, a.o, a.lse, rows, a.seqlen_q, a.heads_q, 1};
    return launch_combine<Element, kHeadDim>(merge, a.splits, queue);
}

template <typename Element>
int dispatch(int head_dim, const ForwardArguments& a, void* workspace, size_t workspace_bytes, void* queue) {
    switch (head_dim) {
        case 64: return launch<Element, 64>(a, workspace, workspace_bytes, queue);
        case 128: return launch<Element, 128>(a, workspace, workspace_bytes, queue);
        case 256: return launch<Element, 256>(a, workspace, workspace_bytes, queue);
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
