// SPDX-License-Identifier: MIT
// MLA decode on mma.sync: split-KV over the paged latent cache, every token tile read once for scores and values.
//
//!KERNEL summary split-KV MLA decode on mma.sync.m16n8k16; one shared tile serves as keys and values
//!KERNEL arch sm_89 sm_90a
//
// Algorithm. The rows of a request are its heads times its queries; a block takes 16, 32 or 64 of them and a range of
// tokens, 32 at a time (half a page). A token's 576 columns are its key, the first 512 its value, so one tile in shared
// memory serves both products:
//   1. scores: eight warps divide rows, tokens and columns; the parts over columns are added in shared memory in fp32;
//   2. softmax: eight lanes per row, online, exp2 domain; P goes back to shared memory in bf16, with the row's factor;
//   3. output: each warp owns 64 of the 512 columns for all rows, O += P V with transposing ldmatrix on the same tile.
// Copies (cp.async, zero-fill behind the length, so that the NaN of unused slots stays out) run one or more tiles ahead;
// page numbers are read one tile before they are needed, and never behind the length. Three barriers per tile.
//
// Splits. Every (request, row tile) is cut into parts of equal token counts, chosen on the host from the largest possible
// length and the workspace; a second kernel merges them in a fixed order. Short requests leave their last parts empty.
//
//   tile           used for                    scores: rows x tokens x columns   stages   blocks/SM   shared memory
//   16 rows        rows not divisible by 32             1 x 2 x 4                   2     2 (Ada 1)       82 KB
//   32 rows        Ada; Hopper: 32 rows                 1 x 2 x 4              4 (Ada 2)     1      165 (92) KB
//   64 rows        Hopper, from 64 rows on              2 x 1 x 4                   3         1           218 KB
//
// Q fragments stay in registers for the small tiles (a warp needs a quarter of the columns); 64 rows keep Q in shared memory.
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors; heads_q * seqlen_q any multiple of 16.
// Limits: bandwidth-bound at 16 rows; at 64 and more rows bound by mma.sync and shared memory, about half of what wgmma
// reaches. Requests of very different lengths are balanced by the part size only.
#include "kernel.h"

#include "ceil_div.h"
#include "launch.h"
#include "tile/combine_splits.h"
#include "tile/latent_decode.h"

namespace {

// The oldest architecture of this build chooses the tiles: nvcc defines the list for host and device passes alike.
constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
constexpr bool kHopper = kArchitectures[0] >= 900;

using Rows16 = DecodeTile<1, 1, 2, 2, true, kHopper ? 2 : 1>;
using Rows32 = DecodeTile<2, 1, 2, kHopper ? 4 : 2, true, 1>;
using Rows64 = DecodeTile<4, 2, 1, 3, false, 1>;  // Hopper only

// In tiles of 32 tokens; a merge costs a launch and the round trip of the parts.
constexpr SplitCost kSplitCost = {4.0, 4.0, 0.02};

template <typename Tile>
int launch(DecodeArguments a, void* workspace, size_t workspace_bytes, void* queue) {
    static_assert(kHopper || Tile::kSharedBytes <= 99 * 1024, "Ada offers a block 99 KB");
    static_assert(Tile::kSharedBytes <= 227 * 1024, "Hopper offers a block 227 KB");
    const auto kernel = latent_decode<Tile>;
    int device = 0, multiprocessors = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    }
    if (status == cudaSuccess) {
        status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
    }
    if (status != cudaSuccess) return status;

    const int rows_per_request = a.seqlen_q * a.heads;
    a.row_tiles = rows_per_request / Tile::kRows;
    const long long rows = static_cast<long long>(a.batch) * rows_per_request;
    const long long units = static_cast<long long>(a.batch) * a.row_tiles;
    if (units > 0x7fffffffLL || a.max_blocks > (1 << 24)) return kUnsupportedShape;
    const int steps = a.max_blocks * (kPage / Tile::kTokens);
    a.splits = choose_splits(units, steps, multiprocessors * Tile::kBlocks,
                             SplitWorkspace::capacity(workspace_bytes, rows, kLatent), kSplitCost);
    a.steps_per_split = ceil_div(steps, a.splits);
    if (a.splits > 1) a.parts = SplitWorkspace::at(workspace, a.splits, rows, kLatent);
    const dim3 grid(static_cast<unsigned>(units), static_cast<unsigned>(a.splits));
    LAUNCH(kernel, grid, dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
    const int launched = LAUNCH_STATUS();
    if (launched != kOk || a.splits == 1) return launched;
    return launch_combine<Bf16, kLatent>({a.parts, a.o, a.lse, rows, a.splits, a.seqlen_q, a.heads, 1}, queue);
}

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

extern "C" int mla_decode(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    if (batch < 1 || seqlen_q < 1 || heads_q < 1 || num_blocks < 1 || max_blocks_per_seq < 1) return kUnsupportedShape;
    const int rows = seqlen_q * heads_q;
    if (rows % 16 != 0 || !(softmax_scale > 0.0f)) return kUnsupportedShape;
    if (!aligned(q) || !aligned(kv_cache) || !aligned(o)) return kUnsupportedShape;
    DecodeArguments a{};
    a.q = static_cast<const uint8_t*>(q);
    a.cache = static_cast<const uint8_t*>(kv_cache);
    a.block_table = block_table;
    a.seqlens = seqlens;
    a.o = static_cast<uint8_t*>(o);
    a.lse = lse;
    a.batch = batch;
    a.seqlen_q = seqlen_q;
    a.heads = heads_q;
    a.max_blocks = max_blocks_per_seq;
    a.causal = causal != 0;
    a.scale = softmax_scale * kLog2E;
    if constexpr (kHopper) {
        if (rows % 64 == 0) return launch<Rows64>(a, workspace, workspace_bytes, queue);
    }
    if (rows % 32 == 0) return launch<Rows32>(a, workspace, workspace_bytes, queue);
    return launch<Rows16>(a, workspace, workspace_bytes, queue);
}
