// SPDX-License-Identifier: MIT
// MLA decode on mma.sync: split-KV over the paged latent cache, every token tile read once for scores and values.
//
//!KERNEL summary split-KV MLA decode on mma.sync.m16n8k16; one shared tile serves as keys and values
//!KERNEL arch sm_89 sm_90a
//!KERNEL tune ROWS16_STAGES=5,2
//!KERNEL tune ROWS16_BLOCKS=1,2
//!KERNEL tune ROWS32_STAGES=4,2
//
// Algorithm. The rows of a request are its heads times its queries; a block takes 16, 32 or 64 of them and a range of
// tokens, 32 at a time (half a page). A token's 576 columns are its key, the first 512 its value, so one tile in shared
// memory serves both products:
//   1. scores: eight warps divide rows, tokens and columns; the parts over columns are added in shared memory in fp32;
//   2. softmax: eight lanes per row, online, exp2 domain; P goes back to shared memory in bf16, with the row's factor;
//   3. output: each warp owns 64 of the 512 columns for all rows, O += P V with transposing ldmatrix on the same tile.
// Three barriers per tile. Copies run one or more tiles ahead; page numbers are read one tile before they are needed, and
// never behind the length. Slots behind the length hold NaN: they are not read, their rows in shared memory are zero.
//
// Memory. Rows are swizzled by 16-byte chunks (tile/wide_rows.h): ldmatrix reads and cp.async writes whole 128-byte lines
// without bank conflicts. What hides the way to memory are bytes in flight: on Hopper one block of five stages keeps four
// tiles, 147 KB per multiprocessor, under way. Two blocks of two stages hide each other's barriers instead, but make twice the
// parts: 1-3 % faster for 32 requests and more that are cut anyway, 10-15 % slower where that cuts or merges more.
//
// Balance (tile/decode_schedule.h). All tokens of the batch form one line, cut into equal chunks, one per group of blocks:
// lengths may differ as they like, and are read on the device only. Requests that a chunk's edge cuts leave parts in the
// workspace, merged by a second kernel in a fixed order. Without workspace, or where the largest possible lengths say that
// it would not pay, each group takes one request.
//
//   tile       used for                    scores: rows x tokens x columns   stages   blocks/SM   shared memory
//   16 rows    rows not divisible by 32             1 x 2 x 4              5 (Ada 2)      1      189 KB (Ada 81)
//   32 rows    Ada; Hopper: not divisible by 64     1 x 2 x 4              4 (Ada 2)      1      163 KB (Ada 91)
//   64 rows    Hopper: divisible by 64              2 x 1 x 4                  3          1      217 KB
//
// Q fragments stay in registers for the small tiles (a warp needs a quarter of the columns); 64 rows keep Q in shared memory.
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors; heads_q * seqlen_q any multiple of 16.
// Limits: bandwidth-bound at 16 rows; at 64 and more rows bound by mma.sync and shared memory, well below wgmma.
#include "kernel.h"

#include "ceil_div.h"
#include "launch.h"
#include "tile/combine_splits.h"
#include "tile/latent_decode.h"

// First choices stand in the table above.
#ifndef ROWS16_STAGES
#define ROWS16_STAGES 5
#endif
#ifndef ROWS16_BLOCKS
#define ROWS16_BLOCKS 1
#endif
#ifndef ROWS32_STAGES
#define ROWS32_STAGES 4
#endif

namespace {

// The oldest architecture of this build chooses the tiles: nvcc defines the list for host and device passes alike.
constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
constexpr bool kHopper = kArchitectures[0] >= 900;

using Rows16 = DecodeTile<1, 1, 2, kHopper ? ROWS16_STAGES : 2, true, kHopper ? ROWS16_BLOCKS : 1>;
using Rows32 = DecodeTile<2, 1, 2, kHopper ? ROWS32_STAGES : 2, true, 1>;
using Rows64 = DecodeTile<4, 2, 1, 3, false, 1>;  // Hopper only

// In tiles of 32 tokens: a group's start and end; the second kernel.
constexpr double kStartCost = 4.0, kMergeCost = 4.0;

/// Groups of blocks that share the line of tokens, or 0 for one group per request.
int choose_groups(long long batch, int longest_steps, long long row_tiles, long long slots, long long most) {
    const long long groups = most < slots / row_tiles ? most : slots / row_tiles;
    if (groups < 2) return 0;
    const double rounds = static_cast<double>(ceil_div<long long>(batch * row_tiles, slots));
    const double whole = rounds * (kStartCost + longest_steps);
    const long long line = batch * (longest_steps + DecodeSchedule::kStartSteps);
    const double cut = kStartCost + static_cast<double>(ceil_div<long long>(line, groups)) + kMergeCost;
    return cut < whole ? static_cast<int>(groups) : 0;
}

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

    const int rows = a.seqlen_q * a.heads;  // of a request
    const int batch = a.schedule.batch;
    a.row_tiles = rows / Tile::kRows;
    const long long most = SplitWorkspace::capacity(workspace_bytes, rows, kLatent) - batch;
    a.schedule.groups = choose_groups(batch, a.max_blocks * (kPage / Tile::kTokens), a.row_tiles,
                                      static_cast<long long>(multiprocessors) * Tile::kBlocks, most);
    const int groups = a.schedule.groups == 0 ? batch : a.schedule.groups;
    if (a.schedule.groups != 0) {
        a.parts = SplitWorkspace::at(workspace, DecodeSchedule::part_count(groups, batch), rows, kLatent);
    }
    const long long blocks = static_cast<long long>(groups) * a.row_tiles;
    if (blocks > 0x7fffffffLL) return kUnsupportedShape;
    LAUNCH(kernel, dim3(static_cast<unsigned>(blocks)), dim3(Tile::kThreads), Tile::kSharedBytes, queue)(a);
    const int launched = LAUNCH_STATUS();
    if (launched != kOk || a.schedule.groups == 0) return launched;
    const CombineArguments<DecodeParts<>> merge = {
        {a.schedule, rows}, a.parts, a.o, a.lse, static_cast<long long>(batch) * rows, a.seqlen_q, a.heads, 1};
    return launch_combine<Bf16, kLatent>(merge, groups / batch + 1, queue);
}

bool aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

}  // namespace

extern "C" int mla_decode(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    if (batch < 1 || seqlen_q < 1 || heads_q < 1 || num_blocks < 1 || max_blocks_per_seq < 1) return kUnsupportedShape;
    // The line of all tokens is counted in int.
    if (static_cast<long long>(batch) * (max_blocks_per_seq + 1LL) > (1 << 28)) return kUnsupportedShape;
    const int rows = seqlen_q * heads_q;
    if (rows % 16 != 0 || !(softmax_scale > 0.0f)) return kUnsupportedShape;
    if (!aligned(q) || !aligned(kv_cache) || !aligned(o)) return kUnsupportedShape;
    DecodeArguments a{};
    a.q = static_cast<const uint8_t*>(q);
    a.cache = static_cast<const uint8_t*>(kv_cache);
    a.block_table = block_table;
    a.o = static_cast<uint8_t*>(o);
    a.lse = lse;
    a.schedule.seqlens = seqlens;
    a.schedule.batch = batch;
    a.schedule.longest = max_blocks_per_seq * kPage;
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
