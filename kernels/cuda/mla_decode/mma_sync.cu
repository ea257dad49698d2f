// SPDX-License-Identifier: MIT
// MLA decode on mma.sync: split-KV over the paged latent cache, every token tile read once for scores and values.
//
//!KERNEL summary split-KV MLA decode on mma.sync.m16n8k16; one shared tile serves as keys and values
//!KERNEL arch sm_89 sm_90a
//!KERNEL tune ROWS16_STAGES=5,2
//!KERNEL tune ROWS16_BLOCKS=1,2
//!KERNEL tune ROWS32_STAGES=4,2
//!KERNEL define QUICK_CUT=0
//!KERNEL define EXPECTED_CUT=0
//
//   producer loop  mla/mma_sync.h (decode_piece)
//   main loop      mla/mma_sync.h (decode_piece)
//   epilogue       mla/mma_sync.h (decode_piece), common/combine_splits.h
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
// Memory. Rows are swizzled by 16-byte chunks (common/wide_rows.h): ldmatrix reads and cp.async writes whole 128-byte lines
// without bank conflicts. What hides the way to memory are bytes in flight: on Hopper one block of five stages keeps four
// tiles, 147 KB per multiprocessor, under way. Two blocks of two stages hide each other's barriers instead, but make twice the
// parts: 1-3 % faster for 32 requests and more that are cut anyway, 10-15 % slower where that cuts or merges more.
//
// Balance (mla/schedule.h). All tokens of the batch form one line, cut into equal chunks, one per group of blocks:
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

#include "mla/call.h"
#include "mla/mma_sync.h"

using namespace mla;

extern "C" int mla_decode(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    const DecodeCall call = {
        q,          kv_cache,           block_table, seqlens,      o, lse, batch, seqlen_q, heads_q,
        num_blocks, max_blocks_per_seq, causal,      softmax_scale};
    if (!call.valid(1, 1 << 28) || call.rows() % 16 != 0)
        return kUnsupportedShape;  // the line of all tokens is counted in int
    const auto a = call.arguments<DecodeArguments>();
    const int rows = seqlen_q * heads_q;
    if constexpr (kLatentHopper) {
        if (rows % 64 == 0) return launch_latent<LatentRows64>(a, workspace, workspace_bytes, queue);
    }
    if (rows % 32 == 0) return launch_latent<LatentRows32>(a, workspace, workspace_bytes, queue);
    return launch_latent<LatentRows16>(a, workspace, workspace_bytes, queue);
}
