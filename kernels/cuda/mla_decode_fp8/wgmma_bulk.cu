// SPDX-License-Identifier: MIT
// MLA decode over an e4m3 cache on wgmma: tokens are the rows of both products, codes reach them through registers.
//
//!KERNEL summary split-KV MLA decode over e4m3 codes on wgmma.m64nNk32.e4m3 and m64nNk16.f16, A in registers; pages by bulk copies
//!KERNEL arch sm_90a
//!KERNEL tune EARLY_START=1,0
//!KERNEL tune FETCH_AHEAD=1,0
//!KERNEL tune THROTTLE=2,0,3,6
//!KERNEL tune LAST_MERGES=8,0
//!KERNEL define QUICK_CUT=0
//!KERNEL define EXPECTED_CUT=0
//!KERNEL define START_PAGES=2
//
//   producer loop  mla/fp8_producer.h (copy_all)
//   main loop      mla/fp8_small_m_mainloop.h (piece), mla/fp8_wide_scores.h (work), mla/fp8_wide.h (work)
//   epilogue       mla/fp8_small_m_mainloop.h (finish), mla/fp8_wide.h (store), mla/fp8_small_m_merge.h (merge_if_last), mla/combine.h
//                  (merge_latent)
//
// Algorithm. The rows of a request are its heads times its queries. A token's latent columns are 512 e4m3 codes with a scale for
// each group of 128, the rotary ones bf16. Scores are S^T = K Q^T, [64 tokens, rows], the output is O^T = V^T P^T, [512 columns,
// rows]: K and V^T, the same bytes, are the A operand of wgmma, which may come from registers. 16-bit tiles of them never exist.
//
//   16 rows (mla/fp8_small_m_mainloop.h): two warpgroups take pages of 64 tokens in turns, each scores, softmax and all columns of
//     the output, 64 registers; they meet at the end of a piece. Keys are e4m3 operands as ldmatrix reads them. A query is the sum
//     of two e4m3 numbers, which hold bf16's eight bits (mla/fp8_small_m_products.h), two of a product's 32 columns; a group's sums are
//     scaled by themselves. Values become fp16, which holds every e4m3 value: transposing ldmatrix gives two columns of two tokens,
//     which a byte permutation sorts. Scales multiply the weights, fp16, of which there are four planes. Every product sees exact
//     codes.
//   32 and 64 rows (mla/fp8_wide.h): one warpgroup makes scores and weights, two multiply values, 256 columns each. All
//     codes become fp16, four neighbouring columns of a token in an order the queries (fp16, a power of two apart, exact) share.
//     Scales multiply them there, relative to the largest of the token (keys) or of all seen so far (values).
//
// References of exponents and scales are raised only where a page exceeds them by 2^8, or at all: no exchange of maxima.
// 16 rows' weights are made before a warp knows whether the others ask for it, and once more if so: one barrier a page.
//
// Memory. A token's 656 bytes lie in shared memory as in the cache: rows of 41 16-byte chunks start at different banks, and 32
// tokens are one bulk copy, issued by a warp of its own that runs ahead over requests. Slots behind the length hold NaN, as
// codes, scales and rotary columns: they are not read, their rows in shared memory are zero.
//
//   rows       used for                       slots of 32 tokens   shared memory
//   16         rows not divisible by 32               9                224 KB
//   32         rows not divisible by 64               8                210 KB
//   64         the others                             6                214 KB
//
// Balance (mla/schedule.h) in steps of pages: the batch is one line, cut into equal chunks; equal requests are cut between
// them, or alike, where that costs little. Parts are merged in a fixed order: with 16 rows, where equal requests have two, three or four
// chunks each, or eight and short ones, by the blocks of a cluster through their shared memory (mla/fp8_small_m_mainloop.h), else by a
// second kernel (mla/combine.h). With up to LAST_MERGES requests of few parts each no second kernel is launched: where lengths differ the
// last block with a part of a request merges it (mla/fp8_small_m_merge.h). With 16 rows blocks keep in step (mla/throttle.h), since
// multiprocessors do not get equal shares of memory.
//
// Kernels start beside the end of the one before. With 16 rows and 19 requests or more a block then works out its first piece from the
// lengths as they are, and again if they are others when that kernel has ended (mla/fp8_small_m_shape.h). Where requests are as long as
// they may be, it also asks its first page into L2 then.
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors; heads_q * seqlen_q any multiple of 16.
// Accuracy: weights are rounded to fp16's 11 bits, with 32 and more rows scaled codes, too. What is less than 2^-21 of the largest
// weight or scale seen loses bits. With 16 rows the FP8 adder keeps 13 fraction bits of a sum over 128 columns of a score, and
// queries that are less than 2^-9 of their row's largest lose bits.
// Limits: a page of 64 rows takes more than twice the time that the tensor cores need, most of it scores, so that with 64 and more
// heads a bf16 cache is faster. 16 rows wait for memory at the full clock; at the power limit, where the clock is a quarter lower, a
// page's work takes as long as its bytes. A block's start and end take a twentieth of the time of 128 x 4096. With up to LAST_MERGES
// requests of different lengths one block merges a request: 3 of up to 1000 tokens take 1.14 times what a second kernel would.
#include "kernel.h"

#include <cstdint>

constexpr int kChunkSlack = 3;  // pages by which chunks may grow so that equal requests need not be merged

#include "mla/call.h"
#include "mla/fp8_small_m.h"
#include "mla/fp8_wide.h"

using namespace mla;

extern "C" int mla_decode_fp8(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    using Rows16 = Fp8SmallMShape<9>;
    const DecodeCall call = {
        q,          kv_cache,           block_table, seqlens,      o, lse, batch, seqlen_q, heads_q,
        num_blocks, max_blocks_per_seq, causal,      softmax_scale};
    const long long rows = call.rows();
    if (!call.valid(2, 1 << 28) || rows % 16 != 0 || rows > (1 << 20))
        return kUnsupportedShape;  // pages are counted in int
    if (!DecodeCall::aligned(workspace)) return kUnsupportedShape;
    using Rows64 = Fp8WideShape<64, 6>;
    using Rows32 = Fp8WideShape<32, 8>;
    if (rows % 64 == 0) {
        return launch_fp8_wgmma<Rows64>(
            fp8_wide<Rows64>, call.arguments<Rows64::Arguments>(), kChunkSlack, EARLY_START != 0, workspace,
            workspace_bytes, queue);
    }
    if (rows % 32 == 0) {
        return launch_fp8_wgmma<Rows32>(
            fp8_wide<Rows32>, call.arguments<Rows32::Arguments>(), kChunkSlack, EARLY_START != 0, workspace,
            workspace_bytes, queue);
    }
    auto arguments = call.arguments<Rows16::Arguments>();
    arguments.pages = num_blocks;
    return launch_fp8_wgmma<Rows16>(
        fp8_small_m<Rows16, false>, arguments, kChunkSlack, EARLY_START != 0, workspace, workspace_bytes, queue,
        fp8_small_m<Rows16, true>);
}
