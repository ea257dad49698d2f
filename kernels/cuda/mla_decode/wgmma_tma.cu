// SPDX-License-Identifier: MIT
// MLA decode on wgmma and TMA: split-KV over the paged latent cache, every page read once for scores and values.
//
//!KERNEL summary split-KV MLA decode on wgmma.m64nNk16, pages by TMA as keys and values; two forms by the number of rows
//!KERNEL arch sm_90a
//!KERNEL tune PAIRS=1,0
//!KERNEL tune SMALL_M_ROWS=32,16,0
//!KERNEL tune FETCHED_BYTES=128,256
//!KERNEL tune EARLY_START=1,0
//!KERNEL define QUICK_CUT=1
//!KERNEL define EXPECTED_CUT=1
//!KERNEL define START_PAGES=1
//
//   producer loop  mla/wgmma_producer.h (produce_pages), mla/small_m.h (produce_small_m)
//   main loop      mla/wgmma_mainloop.h (piece), mla/small_m_mainloop.h (piece)
//   epilogue       mla/wgmma_mainloop.h (finish), mla/small_m_mainloop.h (finish), mla/combine.h (merge_latent)
//
// A token's 576 columns are its key, the first 512 its value, so one tile in shared memory, nine panels of 64 columns in
// TMA's 128-byte swizzle, serves both products. A block takes a range of pages of 64 tokens, two of which lie in shared
// memory (72 KB each); products start with the first panels that have landed.
//
// 64 rows (heads times queries of a request) and more. A block takes 64 of them. Scores are Q K^T, with K innermost in both,
// the output P V with V transposed. The output of 64 x 512 fills the registers of two warpgroups, 256 columns each. They
// take turns with the pages' scores and softmax, so that one's exponentials fall into the other's products
// (mla/wgmma_mainloop.h). Each half of a page is loaded again as soon as its warpgroup has used it. With an even
// number of row tiles two neighbouring blocks read the same pages: each loads every other box of two panels, and TMA
// writes them to both (PAIRS), which halves what L2 delivers.
//
// 16 and 32 rows. Tokens are the 64 rows of both products, so nothing is padded (mla/small_m.h).
//
// Slots behind the length hold NaN: they are loaded, their scores are masked, and their values cleared before use.
//
// Balance (mla/schedule.h) in steps of pages: the batch is one line, cut into equal chunks; equal requests are cut between
// them, or each into the same chunks, where that costs little. In pairs, requests that fit into a chunk are left whole
// beside much longer or similar ones (mla/whole_requests.h). Parts are merged in a fixed order: with 64 rows and more by the blocks
// that computed them, as bf16 accumulators (mla/workspace.h), with 16 and 32 rows by a second kernel (mla/combine.h), unless all
// requests of 16 rows are as long as they may be and two chunks each: then the blocks of a request are a cluster and store no parts
// (mla/small_m.h). Kernels start beside the end of the one before.
//
// What a call writes would leave L2 in one lump beside the next call's first pages, which costs 64 heads 2 %: large calls of equal
// requests ask L2 to keep it (kKeptPages, mla/wgmma_mainloop.h).
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors; heads_q * seqlen_q any multiple of 16.
// Limits: one block per multiprocessor. 64 rows and more: two pages move 592 KB through shared memory, 4740 cycles of 128 bytes, where
// tensor cores need 4352, and a third page does not fit; tensor cores work about 75 % of the time, at 700 W and 1.45 GHz where it lasts.
// From the 513th workspace on that a process uses, requests are not cut, and blocks of 16 and 32 rows are not kept in step. 16 rows, large
// batches: multiprocessors get unequal shares of a saturated memory, so that equal chunks would end up to 10 % apart; kept in step
// (mla/throttle.h) they end 3 % apart. What is left of a call is 1 us until the first page is asked for and 2.5 from the last page to the next call.

#include "kernel.h"

#include <cstdint>

#include "ceil_div.h"
#include "common/device.h"
#include "launch.h"
#include "mla/call.h"
#include "mla/combine.h"
#include "mla/small_m.h"
#include "mla/wgmma.h"
#include "ptx/mma.h"

using namespace mla;

constexpr int kSmallMSlack = 3;  // pages by which their chunks may grow so that equal requests need not be merged

namespace {

template <class Shape>
int launch_small_m(
    SmallMArguments a, const LatentTensors& tensors, int multiprocessors, void* workspace, size_t workspace_bytes,
    void* queue) {
    const int rows = Shape::kRows, batch = a.schedule.batch;
    const long long most = SplitWorkspace::capacity(workspace_bytes, rows, Shape::kLatent) - batch;
    a.schedule.groups = choose_pages(1, multiprocessors, most);
    a.schedule.slack = kSmallMSlack;
    a.schedule.share(ceil_div(a.schedule.longest, PageSchedule::kTokens));
    a.schedule.expect();
    a.paired = rows == 16 && a.schedule.expected.shares == 2 && a.schedule.groups % 2 == 0;
    const int groups = a.schedule.groups == 0 ? batch : a.schedule.groups;
    if (a.schedule.groups != 0) {
        a.parts = SplitWorkspace::at(workspace, PageSchedule::part_count(groups, batch), rows, Shape::kLatent);
    }
    a.shares.count_set =
        a.schedule.groups == 0 ? -1 : part_count_set(workspace);  // of the blocks' common count of pages
    TensorMap queries, cache;
    int error = encode_panel_map(&queries, tensors.queries, rows, Shape::kPartPanels);
    if (error == 0) error = encode_panel_map(&cache, tensors.cache, Shape::kTokens, Shape::kPartPanels, FETCHED_BYTES);
    if (error == 0) {
        error = launch_cluster(
            latent_small_m<Shape>, groups, Shape::kThreads, a.paired ? 2 : 1, Shape::kSharedBytes, EARLY_START != 0,
            queue, queries, cache, a);
    }
    if (error != 0 || a.schedule.groups == 0) return error;
    return launch_latent_merge(
        {a.schedule, a.parts, a.o, a.lse, a.seqlen_q, a.heads, 1, a.paired}, multiprocessors, EARLY_START != 0, queue);
}

}  // namespace

extern "C" int mla_decode(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    using Single = LatentShape<1, true>;
    const DecodeCall call = {
        q,          kv_cache,           block_table, seqlens,      o, lse, batch, seqlen_q, heads_q,
        num_blocks, max_blocks_per_seq, causal,      softmax_scale};
    if (!call.valid(1, 1 << 28)) return kUnsupportedShape;
    // The line of all pages, the rows of the batch and the tokens of the cache are counted in int.
    const long long rows = call.rows();
    if (rows % 16 != 0 || rows * batch > 0x7fffffffLL || num_blocks > 0x7fffffffLL / Single::kTokens)
        return kUnsupportedShape;
    int status = 0;
    const int multiprocessors = ::multiprocessors(status);
    if (status != 0) return status;

    const LatentTensors tensors = {
        {q, static_cast<int>(rows * batch), Single::kWidth, 2},
        {kv_cache, num_blocks * Single::kTokens, Single::kWidth, 2}};
#if SMALL_M_ROWS >= 16
    if (rows == 16 || (SMALL_M_ROWS >= 32 && rows == 32)) {
        const auto few = call.arguments<SmallMArguments>();
        if (rows == 32)
            return launch_small_m<SmallMShape<2, 2>>(few, tensors, multiprocessors, workspace, workspace_bytes, queue);
        return launch_small_m<SmallMShape<1, 2>>(few, tensors, multiprocessors, workspace, workspace_bytes, queue);
    }
#endif
    auto a = call.arguments<LatentArguments>();
    a.row_tiles = static_cast<int>(ceil_div<long long>(rows, Single::kRows));
#if PAIRS
    using Pair = LatentShape<2, true>;
    if (a.row_tiles % 2 == 0) {
        return launch_latent_wgmma<Pair>(a, tensors, multiprocessors, workspace, workspace_bytes, queue, workspace);
    }
#endif
    // Equal requests of 64 rows lose 2 % by it where they are many; where lengths differ it gains 2 to 4 %.
    constexpr long long kManyPages = 2048;
    if (static_cast<long long>(batch) * max_blocks_per_seq >= kManyPages) {
        return launch_latent_wgmma<LatentShape<1, false, false, true>>(
            a, tensors, multiprocessors, workspace, workspace_bytes, queue, workspace);
    }
    return launch_latent_wgmma<Single>(a, tensors, multiprocessors, workspace, workspace_bytes, queue, workspace);
}
