// SPDX-License-Identifier: MIT
// MLA decode on wgmma and TMA: split-KV over the paged latent cache, every page read once for scores and values.
//
//!KERNEL summary split-KV MLA decode on wgmma.m64nNk16, pages by TMA as keys and values; few rows on mma.sync
//!KERNEL arch sm_90a
//!KERNEL tune SMALL_ROWS=32,0
//!KERNEL tune FETCHED_PAGES=3,2,0
//!KERNEL tune SPREAD=1,0
//!KERNEL tune PAIRS=0,1
//!KERNEL tune EARLY_START=1,0
//
// Up to 32 rows (heads times queries of a request) run the code of mma_sync.cu, which keeps more bytes under way there.
//
// Algorithm for more rows. A block takes 64 of them and a range of pages of 64 tokens. A token's 576 columns are its
// key, the first 512 its value, so one tile in shared memory, nine panels of 64 columns in TMA's 128-byte swizzle,
// serves both products: as B with K innermost for the scores, and transposed for the output. The output of 64 x 512
// fills the registers of two warpgroups, 256 columns each. They take turns with the tiles' scores and softmax, so that
// one's exponentials fall into the other's products (tile/wgmma_latent_consume.h).
//
// Memory: 72 KB of queries, two pages of 72 KB, 8 KB of probabilities. Each half of a page has its own barrier and is
// loaded again as soon as its warpgroup has used it; products start with the first panel that has landed. Page numbers
// are read up to 64 pages ahead. Where several blocks read the same pages, memory is not the bound, and one of them
// asks pages into L2 ahead (FETCHED_PAGES).
//
// Not run on a GPU as it is, hence not the default: PAIRS. Two neighbouring blocks read the same pages; each loads half
// of the tokens of every panel, and TMA writes them to both. See benchmarks/mla_decode.md, also for a better order.
//
// Slots behind the length hold NaN: they are loaded, their scores are masked, and their values cleared before use.
//
// Balance as in mma_sync.cu, in steps of pages (tile/decode_schedule.h); a second kernel merges parts in a fixed order.
//
// Shapes: all of kernel.h with softmax_scale > 0 and 16-byte aligned tensors; any heads_q * seqlen_q.
// Limits: one block per multiprocessor; a page takes about twice the tensor cores' own time.
#include "kernel.h"

#include <cstdint>

#include "ceil_div.h"
#include "launch.h"
#include "ptx/mma_16bit.h"
#include "tile/latent_launch.h"
#include "tile/wgmma_latent_few.h"
#include "tile/wgmma_latent_launch.h"

#ifndef FETCHED_PAGES
#define FETCHED_PAGES 3
#endif
#ifndef SPREAD
#define SPREAD 1
#endif
#ifndef PAIRS
#define PAIRS 0
#endif
#ifndef SMALL_ROWS
#define SMALL_ROWS 0  // up to so many rows go to mma.sync
#endif
#ifndef FEW_ROWS
#define FEW_ROWS 32  // requests of 16 or 32 rows, up to so many: tokens as the rows of products
#endif
#ifndef FEW_SLACK
#define FEW_SLACK 3  // pages by which their chunks may grow so that equal requests need not be merged
#endif
#ifndef FLIGHT
#define FLIGHT 6  // thirds of pages they have under way
#endif
#ifndef ONCE
#define ONCE 1  // L2 drops pages first
#endif

namespace {

template <class Shape>
int launch_few(
    LatentArguments a, const LatentTensors& tensors, int multiprocessors, void* workspace, size_t workspace_bytes,
    void* queue) {
    const int rows = Shape::kRows, batch = a.schedule.batch;
    const long long most = SplitWorkspace::capacity(workspace_bytes, rows, Shape::kLatent) - batch;
    a.schedule.groups = choose_pages(1, multiprocessors, most);
    a.schedule.slack = FEW_SLACK;
    const int groups = a.schedule.groups == 0 ? batch : a.schedule.groups;
    if (a.schedule.groups != 0) {
        a.parts = SplitWorkspace::at(workspace, PageSchedule::part_count(groups, batch), rows, Shape::kLatent);
    }
    TensorMap queries, cache;
    int error = encode_tensor_map(&queries, tensors.queries, rows, 64);
    if (error == 0) error = encode_tensor_map(&cache, tensors.cache, Shape::kTokens, 64, FETCHED_BYTES);
    if (error == 0) {
        error = launch_cluster(
            latent_few<Shape>, groups, Shape::kThreads, 1, Shape::kSharedBytes, EARLY_START != 0, queue, queries, cache, a);
    }
    if (error != 0 || a.schedule.groups == 0) return error;
    return launch_latent_merge(
        {a.schedule, a.parts, a.o, a.lse, a.seqlen_q, a.heads, 1}, multiprocessors, EARLY_START != 0, queue);
}

}  // namespace

extern "C" int mla_decode(
    const void* q, const void* kv_cache, const int* block_table, const int* seqlens, void* o, float* lse, int batch,
    int seqlen_q, int heads_q, int num_blocks, int max_blocks_per_seq, int causal, float softmax_scale, void* workspace,
    size_t workspace_bytes, void* queue) {
    // One row tile: memory is the bound. Several: blocks share pages.
    using Single = LatentShape<1, SPREAD != 0, 0, ONCE != 0>;
    using Several = LatentShape<1, SPREAD != 0, FETCHED_PAGES, ONCE != 0>;
    if (batch < 1 || seqlen_q < 1 || heads_q < 1 || num_blocks < 1 || max_blocks_per_seq < 1) return kUnsupportedShape;
    // The line of all pages, the rows of the batch and the tokens of the cache are counted in int.
    if (static_cast<long long>(batch) * (max_blocks_per_seq + 1LL) > (1 << 28)) return kUnsupportedShape;
    const long long rows = static_cast<long long>(seqlen_q) * heads_q;
    if (rows * batch > 0x7fffffffLL || num_blocks > 0x7fffffffLL / Single::kTokens) return kUnsupportedShape;
    if (!(softmax_scale > 0.0f)) return kUnsupportedShape;
    if (!latent_aligned(q) || !latent_aligned(kv_cache) || !latent_aligned(o)) return kUnsupportedShape;
#if SMALL_ROWS
    if (rows <= SMALL_ROWS && rows % 16 == 0) {
        DecodeArguments few{};
        few.q = static_cast<const uint8_t*>(q);
        few.cache = static_cast<const uint8_t*>(kv_cache);
        few.block_table = block_table;
        few.o = static_cast<uint8_t*>(o);
        few.lse = lse;
        few.schedule.seqlens = seqlens;
        few.schedule.batch = batch;
        few.schedule.longest = max_blocks_per_seq * kPage;
        few.seqlen_q = seqlen_q;
        few.heads = heads_q;
        few.max_blocks = max_blocks_per_seq;
        few.causal = causal != 0;
        few.scale = softmax_scale * kLog2E;
        if (rows % 32 == 0) return launch_latent<LatentRows32>(few, workspace, workspace_bytes, queue);
        return launch_latent<LatentRows16>(few, workspace, workspace_bytes, queue);
    }
#endif
    int device = 0, multiprocessors = 0;
    int status = static_cast<int>(cudaGetDevice(&device));
    if (status == 0) {
        status = static_cast<int>(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
    }
    if (status != 0) return status;

    LatentArguments a{};
    a.q = static_cast<const uint8_t*>(q);
    a.cache = static_cast<const uint8_t*>(kv_cache);
    a.block_table = block_table;
    a.o = static_cast<uint8_t*>(o);
    a.lse = lse;
    a.schedule.seqlens = seqlens;
    a.schedule.batch = batch;
    a.schedule.longest = max_blocks_per_seq * Single::kTokens;
    a.seqlen_q = seqlen_q;
    a.heads = heads_q;
    a.max_blocks = max_blocks_per_seq;
    a.row_tiles = static_cast<int>(ceil_div<long long>(rows, Single::kRows));
    a.causal = causal != 0;
    a.scale = softmax_scale * kLog2E;
    const LatentTensors tensors = {
        {q, static_cast<int>(rows * batch), Single::kWidth, 2},
        {kv_cache, num_blocks * Single::kTokens, Single::kWidth, 2}};
#if FEW_ROWS >= 16
    if (rows == 16) {
        return launch_few<FewShape<1, 2, FLIGHT, ONCE != 0>>(a, tensors, multiprocessors, workspace, workspace_bytes, queue);
    }
#endif
#if FEW_ROWS >= 32
    if (rows == 32) {
        return launch_few<FewShape<2, 2, FLIGHT, ONCE != 0>>(a, tensors, multiprocessors, workspace, workspace_bytes, queue);
    }
#endif
#if PAIRS
    using Pair = LatentShape<2, SPREAD != 0, FETCHED_PAGES, ONCE != 0>;
    if (a.row_tiles % 2 == 0) return launch_latent_wgmma<Pair>(a, tensors, multiprocessors, workspace, workspace_bytes, queue);
#endif
    if (a.row_tiles > 1) return launch_latent_wgmma<Several>(a, tensors, multiprocessors, workspace, workspace_bytes, queue);
    return launch_latent_wgmma<Single>(a, tensors, multiprocessors, workspace, workspace_bytes, queue);
}
